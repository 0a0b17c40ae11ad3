//! Finds a compiler with the standard library of a target.
//!
//! First choice: the compiler in `PATH`, whose library for the target is installed or comes from
//! rustup. Second: Debian's compiler, which builds the library from Debian's source.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{install, is_in_path, output, plain, run_within};

/// How long rustup may take to download libraries.
const DOWNLOAD: Duration = Duration::from_secs(120);

/// The programs of Debian's packages, which come after those of rustup in `PATH`.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// The compilers that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The compiler in `PATH` if possible, otherwise Debian's.
    Any,
    /// Debian's only.
    Debian,
}

/// A compiler for one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Toolchain {
    /// The compiler in `PATH`, which has the target's standard library.
    Installed,
    /// Debian's compiler, which builds the standard library.
    Debian,
}

impl Toolchain {
    /// Returns a command that runs cargo in the folder `root`.
    pub fn cargo(self, root: &Path) -> Command {
        match self {
            Self::Installed => plain("cargo", root),
            Self::Debian => {
                let mut command = plain(DEBIAN_CARGO, root);
                // Allows options of unstable features to a stable compiler.
                command.env("RUSTC_BOOTSTRAP", "1");
                command.env("RUSTC", DEBIAN_RUSTC);
                command
            }
        }
    }

    /// Returns cargo's subcommand for checks: Clippy if the toolchain has it.
    pub fn check(self) -> &'static str {
        match self {
            Self::Installed => "clippy",
            Self::Debian => "check",
        }
    }

    /// Returns the options of a check for the compiler: warnings of Clippy are errors.
    pub fn lints(self) -> &'static [&'static str] {
        match self {
            Self::Installed => &["--", "-D", "warnings"],
            Self::Debian => &[],
        }
    }

    /// Returns the options that follow cargo's subcommand.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Installed => &[],
            Self::Debian => &["-Zbuild-std=std,panic_abort,panic_unwind,test"],
        }
    }

    /// The toolchain's name in messages and in folders of builds.
    pub fn name(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Debian => "debian",
        }
    }
}

/// Returns the toolchain for each target, in order. Downloads and installs what is missing.
///
/// # Errors
/// A target has neither a library from rustup nor Debian's compiler and source.
pub fn prepare(root: &Path, targets: &[&str], origin: Origin) -> Result<Vec<Toolchain>, String> {
    let toolchains: Vec<Toolchain> = match origin {
        Origin::Debian => vec![Toolchain::Debian; targets.len()],
        Origin::Any => (add_libraries(root, targets).into_iter())
            .map(|is_installed| match is_installed {
                true => Toolchain::Installed,
                false => Toolchain::Debian,
            })
            .collect(),
    };
    if toolchains.contains(&Toolchain::Debian) {
        prepare_debian(root).map_err(|error| match origin {
            Origin::Debian => format!("no standard library: {error}"),
            Origin::Any => {
                let names = targets.join(" ");
                format!("no standard library: `rustup target add {names}`, or {error}")
            }
        })?;
    }
    Ok(toolchains)
}

/// Has rustup download the standard libraries that the compiler in `PATH` lacks. Returns whether it
/// has the library of each target, in order.
pub fn add_libraries(root: &Path, targets: &[&str]) -> Vec<bool> {
    let missing: Vec<&str> = (targets.iter().copied())
        .filter(|target| !has_library(root, target))
        .collect();
    if !missing.is_empty() && is_in_path("rustup") {
        let mut add = plain("rustup", root);
        add.args(["target", "add"]).args(&missing);
        if let Err(error) = run_within(&mut add, DOWNLOAD) {
            println!("rustup cannot add targets: {error}");
        }
    }
    (targets.iter())
        .map(|target| has_library(root, target))
        .collect()
}

/// Whether the compiler in `PATH` has the standard library of a target.
fn has_library(root: &Path, target: &str) -> bool {
    let mut rustc = plain("rustc", root);
    let folder = output(rustc.args(["--print", "target-libdir", "--target", target]));
    folder.is_ok_and(|folder| has_files(Path::new(&folder)))
}

fn has_files(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Installs Debian's cargo, compiler and source of the standard library, of one version.
fn prepare_debian(root: &Path) -> Result<(), String> {
    let source = || -> Option<PathBuf> {
        let sysroot = output(plain(DEBIAN_RUSTC, root).args(["--print", "sysroot"])).ok()?;
        let source = Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.toml");
        source.exists().then_some(source)
    };
    if Path::new(DEBIAN_CARGO).exists() && source().is_some() {
        return Ok(());
    }
    // Old releases have recent compilers, for browsers, under this name.
    let has_web = output(Command::new("apt-cache").args(["show", "rust-web-src"])).is_ok();
    install(match has_web {
        true => &["cargo-web", "rustc-web", "rust-web-src"],
        false => &["cargo", "rustc", "rust-src"],
    })?;
    match source() {
        Some(_) => Ok(()),
        None => Err(format!(
            "{DEBIAN_RUSTC} has no source of the standard library in its sysroot"
        )),
    }
}
