//! Packages that the tests build, and the second version of Plimsoll.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{fs, io};

/// Files that programs and libraries may include.
const SHARED: [(&str, &str); 2] = [
    ("src/figures.rs", include_str!("figures.rs")),
    ("src/work.rs", include_str!("work.rs")),
];

/// The version of the copy.
const VERSION: &str = "99.0.0";

/// Returns the directory of the crates.
pub fn crates() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    crates
        .canonicalize()
        .expect("this package is below the crates")
}

/// The directory of everything that the tests make. It stays, so that cargo need not build all of it again.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("two_versions")
}

/// Copies files with their times, and changes manifests by `edit`.
fn copy(from: &Path, to: &Path, edit: &impl Fn(&str) -> String) -> io::Result<()> {
    const OMITTED: [&str; 4] = ["beside", "fuzz", "node_modules", "target"];
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let from = entry?.path();
        let name = from.file_name().expect("an entry has a name");
        let to = to.join(name);
        if from.is_dir() {
            if !OMITTED.iter().any(|&omitted| name == omitted) {
                copy(&from, &to, edit)?;
            }
            continue;
        }
        let modified = fs::metadata(&from)?.modified()?;
        fs::copy(&from, &to)?;
        if name == "Cargo.toml" {
            fs::write(&to, edit(&fs::read_to_string(&from)?))?;
        }
        fs::File::options()
            .append(true)
            .open(&to)?
            .set_modified(modified)?;
    }
    Ok(())
}

/// Copies the crates once, with another version. Returns their directory.
pub fn second_version() -> PathBuf {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    let made = COPY.get_or_init(|| {
        let (from, to) = (crates(), folder().join("second"));
        let _ = fs::remove_dir_all(&to);
        let workspace = fs::read_to_string(from.join("../Cargo.toml")).expect("the workspace");
        let version = workspace
            .lines()
            .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
            .expect("the workspace has a version")
            .to_owned();
        let exact = |version: &str| format!("version = \"={version}\"");
        let edit = |manifest: &str| manifest.replace(&exact(&version), &exact(VERSION));
        copy(&from, &to.join("crates"), &edit).expect("the crates can be copied");
        let lines = workspace.lines().map(|line| {
            if line.starts_with("members = ") {
                "members = [\"crates/plimsoll\"]".to_owned()
            } else if line.starts_with("default-members = ") {
                String::new()
            } else {
                line.replace(
                    &format!("version = \"{version}\""),
                    &format!("version = \"{VERSION}\""),
                )
            }
        });
        let lines: Vec<String> = lines.collect();
        fs::write(to.join("Cargo.toml"), lines.join("\n")).expect("the workspace can be written");
        to.join("crates")
    });
    made.clone()
}

/// A package that a test builds.
pub struct Project {
    name: &'static str,
    folder: PathBuf,
}

impl Project {
    /// Creates a package with one program.
    pub fn new(name: &'static str, dependencies: &str, program: &str) -> Self {
        Self::create(name, dependencies, "main.rs", program, "")
    }

    /// Creates a package with one shared library.
    pub fn library(name: &'static str, dependencies: &str, library: &str) -> Self {
        let kind = "\n[lib]\ncrate-type = [\"cdylib\"]\n";
        Self::create(name, dependencies, "lib.rs", library, kind)
    }

    fn create(
        name: &'static str,
        dependencies: &str,
        file: &str,
        source: &str,
        kind: &str,
    ) -> Self {
        let folder = folder().join(name);
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{kind}\n[workspace]\n\n\
             [dependencies]\nlibc = \"0.2\"\n{dependencies}\n[profile.dev]\ndebug = \"line-tables-only\"\n"
        );
        let write = |path: &str, contents: &str| fs::write(folder.join(path), contents);
        fs::create_dir_all(folder.join("src")).expect("a directory");
        write("Cargo.toml", &manifest).expect("a manifest");
        write(&format!("src/{file}"), source).expect("a source");
        for (path, contents) in SHARED {
            write(path, contents).expect("a source");
        }
        // With these versions, which the registry's cache has.
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
        fs::copy(lock, folder.join("Cargo.lock")).expect("a lock file");
        Self { name, folder }
    }

    fn target() -> PathBuf {
        folder().join("target")
    }

    /// Runs cargo in the package.
    pub fn cargo(&self, words: &[&str]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(words).current_dir(&self.folder);
        cargo.env("CARGO_TARGET_DIR", Self::target());
        cargo.output().expect("cargo can be run")
    }

    /// Builds the package.
    pub fn build(&self) {
        let output = self.cargo(&["build", "--quiet"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", self.name);
    }

    /// Returns the path of the built library.
    pub fn built(&self) -> PathBuf {
        Self::target().join(format!("debug/lib{}.so", self.name))
    }

    /// Runs the program.
    pub fn run(&self, settings: &str, arguments: &[PathBuf]) {
        let mut program = Command::new(Self::target().join("debug").join(self.name));
        let output = program.args(arguments).env("PLIMSOLL", settings).output();
        let output = output.expect("the program can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {}\n{errors}",
            self.name,
            output.status
        );
    }
}
