//! The folder with the command, for its tests, and with the programs that its test `launcher` runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::LINKER;
use super::build::Build;
use super::image::ExtraFile;
use super::suites::Suite;
use super::system::System;
use crate::cross::run_within;

/// The folder in the image.
pub const FOLDER: &str = "launcher";
/// The variable by which the test `launcher` finds it.
pub const PROGRAMS: &str = "PLIMSOLL_LAUNCHER_PROGRAMS";
/// The variable by which tests find the command.
pub const COMMAND: &str = "PLIMSOLL_TEST_COMMAND";

/// Removes debug information, most of the command's size.
const STRIP: &str = "aarch64-linux-gnu-strip";
/// How long a compiler may take for a small program.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether a suite runs the command.
pub fn is_needed_by(suite: &Suite) -> bool {
    suite.package == "plimsoll-cli"
}

/// Builds the programs. The suite must have been built, which builds the command.
///
/// # Errors
/// A program does not compile, or Python is missing.
pub fn files(
    root: &Path,
    folder: &Path,
    build: &Build<'_>,
    system: &System,
) -> Result<Vec<ExtraFile>, String> {
    let sources = root.join("crates/plimsoll-cli/tests/launcher");
    let command = folder.join("plimsoll");
    run_within(
        Command::new(STRIP)
            .args(["--strip-debug", "-o"])
            .args([&command, &build.program("plimsoll")]),
        LIMIT,
    )?;
    let c = folder.join("known_c");
    run_within(
        Command::new(LINKER)
            .args(["-g", "-O1", "-fno-builtin", "-pthread", "-o"])
            .args([&c, &sources.join("known.c")]),
        LIMIT,
    )?;
    let python = system.python()?;
    let mut files = Vec::new();
    for (name, file) in [
        ("plimsoll", command),
        ("known_c", c),
        ("known_rust", build.example("known_rust")?),
        ("known.py", sources.join("known.py")),
        ("usr/bin/python3", python.join("usr/bin/python3")),
    ] {
        let path = format!("{FOLDER}/{name}");
        files.push(ExtraFile { path, file });
    }
    for file in all_below(&python)? {
        let below = file.strip_prefix(&python).expect("the file is below it");
        let below = below.to_string_lossy();
        let name = below.rsplit('/').next().unwrap_or_default();
        if name.contains(".so.") {
            let path = format!("lib/{}", so_name(name));
            files.push(ExtraFile { path, file });
        } else if below.starts_with("usr/lib/python") {
            let path = format!("{FOLDER}/{below}");
            files.push(ExtraFile { path, file });
        }
    }
    Ok(files)
}

/// The name by which programs need a library: without minor versions.
fn so_name(name: &str) -> String {
    let (stem, version) = name.split_once(".so.").unwrap_or((name, ""));
    let major = version.split('.').next().unwrap_or_default();
    format!("{stem}.so.{major}")
}

/// All regular files below a folder. Links are left out: the files that they lead to are there.
fn all_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            files.extend(all_below(&entry.path())?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}
