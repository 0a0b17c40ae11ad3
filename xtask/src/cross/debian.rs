//! Debian's packages: installs those of this machine, and unpacks those of another architecture
//! without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{is_in_path, output, run_within};

/// How long a download or an installation may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Installs packages on this machine. Does nothing if the list is empty.
///
/// # Errors
/// The machine has no `apt-get`, or the user is not root: the message has the command to run. Or
/// the installation fails.
pub fn install(packages: &[&str]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    if !is_in_path("apt-get") {
        return Err(format!(
            "missing: {names} (names of Debian's packages); install what your system calls these"
        ));
    }
    if output(Command::new("id").arg("-u"))? != "0" {
        return Err(format!(
            "missing: {names}; install with `sudo apt-get install --no-install-recommends {names}`"
        ));
    }
    println!("installing {names}");
    let apt = || {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "DPkg::Lock::Timeout=300"]);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    // An outdated list may still name packages that the mirror has.
    if let Err(error) = run_within(apt().arg("update"), LIMIT) {
        println!("warning: {error}");
    }
    run_within(
        apt()
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages),
        LIMIT,
    )
}

/// Packages of another architecture, with package lists of their own: those of the machine stay
/// unchanged, and root is not needed.
pub struct ForeignPackages {
    folder: PathBuf,
    architecture: &'static str,
}

impl ForeignPackages {
    /// Downloads the lists of packages for `architecture` from the machine's sources to `folder`.
    ///
    /// # Errors
    /// The machine has no `apt-get`, or no list can be downloaded.
    pub fn begin(folder: &Path, architecture: &'static str) -> Result<Self, String> {
        for below in ["lists/partial", "archives/partial"] {
            let created = fs::create_dir_all(folder.join(below));
            created.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        // No package counts as installed.
        let created = fs::write(folder.join("status"), "");
        created.map_err(|error| format!("{}: {error}", folder.display()))?;
        let packages = Self {
            folder: folder.to_owned(),
            architecture,
        };
        println!("reading the lists of {architecture} packages");
        run_within(packages.apt("apt-get")?.args(["-qq", "update"]), LIMIT)?;
        Ok(packages)
    }

    /// Returns the first dependency of a package: the current one, for a package that has no files.
    ///
    /// # Errors
    /// The package is unknown or has no dependency.
    pub fn dependency(&self, package: &str) -> Result<String, String> {
        let package = format!("{package}:{}", self.architecture);
        let listed = output(self.apt("apt-cache")?.args(["depends", &package]))?;
        let dependency = listed.lines().find_map(|line| {
            let name = line.trim().strip_prefix("Depends: ")?;
            Some(name.split(':').next().unwrap_or(name).to_owned())
        });
        dependency.ok_or_else(|| format!("the package {package} has no dependency"))
    }

    /// Downloads a package and unpacks its files to a folder.
    ///
    /// # Errors
    /// The package is unknown, or cannot be downloaded or unpacked.
    pub fn unpack(&self, package: &str, folder: &Path) -> Result<(), String> {
        println!("downloading {package}:{}", self.architecture);
        let archives = self.folder.join("archives");
        let mut download = self.apt("apt-get")?;
        download
            .args(["-qq", "download"])
            .arg(format!("{package}:{}", self.architecture))
            .current_dir(&archives);
        run_within(&mut download, LIMIT)?;
        let entries =
            fs::read_dir(&archives).map_err(|error| format!("{}: {error}", archives.display()))?;
        let archive = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
            })
            .ok_or_else(|| format!("apt-get downloaded no file of {package}"))?;
        let unpacked = output(Command::new("dpkg").arg("-x").arg(&archive).arg(folder));
        unpacked?;
        fs::remove_file(&archive).map_err(|error| format!("{}: {error}", archive.display()))
    }

    fn apt(&self, program: &str) -> Result<Command, String> {
        let own = output(Command::new("dpkg").arg("--print-architecture"))?;
        let folder = self.folder.display();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::State={folder}"),
            format!("Dir::State::status={folder}/status"),
            format!("Dir::Cache={folder}"),
            format!("APT::Architectures={own},{}", self.architecture),
            // The user of the sandbox cannot write below the project.
            "APT::Sandbox::User=root".into(),
        ] {
            command.args(["-o", &option]);
        }
        Ok(command)
    }
}
