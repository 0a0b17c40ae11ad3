//! The command, and the programs that it runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::command::file_of_command;

/// Names the folder with the programs.
const FOLDER: &str = "PLIMSOLL_LAUNCHER_PROGRAMS";

fn given() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Returns the command `plimsoll`.
pub fn plimsoll() -> Command {
    Command::new(file_of_command())
}

/// Returns the file of a program. An absolute path is the file itself.
pub fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    match given() {
        Some(folder) => folder.join(name),
        None => BUILT.get_or_init(build).join(name),
    }
}

/// Returns the interpreter; `None`, with a message, if it is not installed.
pub fn python() -> Option<PathBuf> {
    let file = match given() {
        Some(folder) => folder.join("usr/bin/python3"),
        // A program: scripts in `PATH` may select among several.
        None => PathBuf::from("/usr/bin/python3"),
    };
    let exists = file.exists();
    if !exists {
        plimsoll_testkit::skip!("there is no {}", file.display());
    }
    exists.then_some(file)
}

/// Compiles the programs, once for all tests.
fn build() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launcher");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launcher");
    std::fs::create_dir_all(&folder).unwrap();
    let mut c = Command::new("cc");
    c.args(["-g", "-O1", "-fno-builtin", "-pthread", "-o"])
        .args([folder.join("known_c"), sources.join("known.c")]);
    let mut rust = Command::new("rustc");
    rust.args(["--edition", "2024", "-g", "-O", "-o"])
        .args([folder.join("known_rust"), sources.join("known.rs")]);
    for compiler in [&mut c, &mut rust] {
        let status = compiler.status();
        let status = status.unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
        assert!(status.success(), "{compiler:?}");
    }
    std::fs::copy(sources.join("known.py"), folder.join("known.py")).unwrap();
    folder
}
