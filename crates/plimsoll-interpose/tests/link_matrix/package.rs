//! Generated packages, and C sources to compile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{c_compiler_can, command, succeed};
use crate::form::say;

/// The sources of the generated packages.
pub mod source {
    pub const CALLER_C: &str = include_str!("source/caller.c");
    pub const CONTENTION: &str = include_str!("source/contention.rs");
    pub const HOST: &str = include_str!("source/host.rs");
    pub const HOST_C: &str = include_str!("source/host.c");
    pub const LIBRARY: &str = include_str!("source/library.rs");
    pub const PTHREAD_C: &str = include_str!("source/pthread.c");
    pub const PTHREAD_LIBRARY: &str = include_str!("source/pthread_library.rs");
    pub const PTHREAD_PROGRAM: &str = include_str!("source/pthread_program.rs");
    pub const PTHREAD_WITNESS: &str = include_str!("source/pthread_witness.rs");
    pub const PROGRAM: &str = include_str!("source/program.rs");
    pub const PROGRAM_INTEGRATION: &str = include_str!("source/program_integration.rs");
    pub const PROGRAM_LIB: &str = include_str!("source/program_lib.rs");
    pub const WITNESS: &str = include_str!("source/witness.rs");
}

const PROFILES: &str = r#"
[profile.thin]
inherits = "release"
lto = "thin"

[profile.fat]
inherits = "release"
lto = "fat"
codegen-units = 1

[profile.stripped]
inherits = "fat"
panic = "abort"
strip = true
"#;

/// A package in a separate directory, and the way to build it.
pub struct Package {
    pub root: PathBuf,
    pub files: BTreeMap<&'static str, String>,
    pub profile: &'static str,
    pub flags: Vec<String>,
    pub arguments: Vec<String>,
}

impl Package {
    pub fn new(case: &str, name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("link_matrix")
            .join(case)
            .join(name);
        Self {
            root,
            files: BTreeMap::new(),
            profile: "dev",
            flags: Vec::new(),
            // The build needs no downloads.
            arguments: vec!["--offline".to_owned()],
        }
    }

    /// Returns a program that depends on the crate.
    pub fn program(case: &str) -> Self {
        Self::new(case, "program")
            .manifest("program", "", &depends_on_the_crate(&[]))
            .file("src/main.rs", source::PROGRAM)
            .file("src/lib.rs", source::PROGRAM_LIB)
            .file("src/contention.rs", source::CONTENTION)
            .file("src/witness.rs", source::WITNESS)
            .file("tests/integration.rs", source::PROGRAM_INTEGRATION)
    }

    /// Returns a shared library that depends on the crate.
    pub fn library(case: &str, features: &[&str]) -> Self {
        Self::new(case, "library")
            .manifest(
                "library",
                "[lib]\ncrate-type = [\"cdylib\"]",
                &depends_on_the_crate(features),
            )
            .file("src/lib.rs", source::LIBRARY)
            .file("src/contention.rs", source::CONTENTION)
            .file("src/witness.rs", source::WITNESS)
    }

    /// Returns a program that does not depend on the crate.
    pub fn host(case: &str) -> Self {
        Self::new(case, "host")
            .manifest("host", "", "")
            .file("src/main.rs", source::HOST)
            .file("src/contention.rs", source::CONTENTION)
    }

    pub fn manifest(self, name: &str, targets: &str, dependencies: &str) -> Self {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
             publish = false\n\n{targets}\n\n[dependencies]\n{dependencies}\n{PROFILES}\n\
             [workspace]\n"
        );
        self.file("Cargo.toml", &manifest)
    }

    pub fn file(mut self, path: &'static str, content: &str) -> Self {
        self.files.insert(path, content.to_owned());
        self
    }

    pub fn profile(mut self, profile: &'static str) -> Self {
        self.profile = profile;
        self
    }

    /// Adds a code generation option, in the syntax of `-C`.
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.extend(["-C".to_owned(), flag.into()]);
        self
    }

    /// Writes the files that differ, so that a second run rebuilds nothing.
    pub fn write(&self) {
        for (path, content) in &self.files {
            let path = self.root.join(path);
            if fs::read_to_string(&path).is_ok_and(|there| there == *content) {
                continue;
            }
            fs::create_dir_all(path.parent().expect("in the package")).expect("may be written");
            fs::write(path, content).expect("may be written");
        }
    }

    pub fn cargo(&self, verb: &str) -> Command {
        self.write();
        let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&self.root)
            .arg(verb)
            .args(["--profile", self.profile, "--target-dir", "target"])
            .args(&self.arguments)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags.join("\x1f"));
        cargo
    }

    /// Builds the package and returns the path of the built `file`.
    pub fn build(&self, file: &str) -> PathBuf {
        succeed(&mut self.cargo("build"));
        let directory = if self.profile == "dev" {
            "debug"
        } else {
            self.profile
        };
        let built = self.root.join("target").join(directory).join(file);
        assert!(built.exists(), "{built:?}");
        built
    }

    pub fn build_program(&self) -> PathBuf {
        self.build("program")
    }

    pub fn build_library(&self) -> PathBuf {
        self.build("liblibrary.so")
    }

    pub fn build_host(&self) -> PathBuf {
        self.build("host")
    }
}

pub fn depends_on_the_crate(features: &[&str]) -> String {
    format!(
        "plimsoll-interpose = {{ path = {:?}, features = {features:?} }}",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// Builds a C library that makes futex calls and contains no Rust code. Returns `None` without a C
/// compiler.
pub fn c_library(case: &str) -> Option<PathBuf> {
    compile_c(
        case,
        source::CALLER_C,
        "libcaller.so",
        &["-shared", "-fPIC"],
    )
}

pub fn compile_c(case: &str, source: &str, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    if !c_compiler_can(&["--version"]) {
        say(&format!("{case}: no C compiler, so nothing in C is loaded"));
        return None;
    }
    let package = Package::new(case, "c").file("source.c", source);
    package.write();
    let built = package.root.join(name);
    succeed(
        command("cc")
            .current_dir(&package.root)
            .args(arguments)
            .args(["-o", name, "source.c", "-ldl"]),
    );
    Some(built)
}
