//! Builds the test binaries for the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::suites::{Suite, Target};
use super::{LINKER, TARGET};
use crate::cross::Toolchain;

/// The compilation of test binaries, in a separate folder.
pub struct Build<'a> {
    root: &'a Path,
    toolchain: Toolchain,
    folder: PathBuf,
}

impl<'a> Build<'a> {
    /// A compilation to a folder below `folder`.
    pub fn new(root: &'a Path, toolchain: Toolchain, folder: &Path) -> Self {
        Self {
            root,
            toolchain,
            folder: folder.join(toolchain.name()),
        }
    }

    /// Builds the binaries of suites of one package with the same features. Returns their files in
    /// the order of `suites`.
    ///
    /// # Errors
    /// The package does not compile, or cargo reports no binary for a suite.
    pub fn tests(&self, suites: &[Suite]) -> Result<Vec<PathBuf>, String> {
        let Some(first) = suites.first() else {
            return Ok(Vec::new());
        };
        let mut cargo = self.cargo("test", first.triple);
        cargo.args([
            "--no-run",
            "-p",
            first.package,
            "--features",
            first.features,
        ]);
        for suite in suites {
            match suite.target {
                Target::Lib => cargo.arg("--lib"),
                Target::Test(name) => cargo.args(["--test", name]),
            };
        }
        let messages = self.run(&mut cargo, first.package)?;
        let executables = executables(&messages);
        let file = |suite: &Suite| {
            let mut all = executables.iter();
            let found = all.find(|(target, _)| *target == suite.target);
            found.map(|(_, file)| file.clone())
        };
        let files = suites.iter().map(|suite| {
            file(suite).ok_or_else(|| format!("cargo built no test binary {}", suite.name()))
        });
        files.collect()
    }

    /// Builds an example of this package.
    ///
    /// # Errors
    /// It does not compile.
    pub fn example(&self, name: &str) -> Result<PathBuf, String> {
        let mut cargo = self.cargo("build", TARGET);
        cargo.args(["-p", env!("CARGO_PKG_NAME"), "--example", name]);
        self.run(&mut cargo, name)?;
        let below = format!("{TARGET}/debug/examples/{name}");
        Ok(self.folder.join(below))
    }

    /// Builds programs of a package as it is released. Returns their files in the order of `names`.
    ///
    /// # Errors
    /// One does not compile.
    pub fn release_programs(&self, package: &str, names: &[&str]) -> Result<Vec<PathBuf>, String> {
        let mut cargo = self.cargo("build", TARGET);
        cargo.args(["--release", "-p", package]);
        for name in names {
            cargo.args(["--bin", name]);
        }
        self.run(&mut cargo, package)?;
        let file = |name| self.folder.join(format!("{TARGET}/release/{name}"));
        Ok(names.iter().map(file).collect())
    }

    /// The file of a program of a package whose test binaries are built.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{TARGET}/debug/{name}"))
    }

    fn cargo(&self, subcommand: &str, triple: &str) -> Command {
        let mut command = self.toolchain.cargo(self.root);
        command
            .arg(subcommand)
            .args(self.toolchain.options())
            .args(["--target", triple])
            .args(["--message-format", "json-render-diagnostics"])
            .arg("--target-dir")
            .arg(&self.folder)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
            // The compiler brings this linker, and musl for it.
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld")
            // Emulated processors run unoptimized tests for an hour.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_INCREMENTAL", "0")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }

    fn run(&self, cargo: &mut Command, name: &str) -> Result<String, String> {
        let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{name} does not compile for {TARGET}")),
        }
    }
}

/// Returns the test binaries that cargo's messages name, a JSON object in each line.
pub fn executables(messages: &str) -> Vec<(Target<'_>, PathBuf)> {
    let lines = messages.lines().filter_map(|line| {
        let file = string_after(line, "\"executable\":\"")?;
        let target = &line[line.find("\"target\":{")?..];
        let target = match string_after(target, "\"kind\":[\"")? {
            "lib" => Target::Lib,
            "test" => Target::Test(string_after(target, "\"name\":\"")?),
            _ => return None,
        };
        Some((target, PathBuf::from(file)))
    });
    lines.collect()
}

/// The characters after `prefix` to the next quotation mark.
fn string_after<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(prefix)?;
    rest.split('"').next()
}
