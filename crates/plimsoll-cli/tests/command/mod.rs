//! Runs the command.

#![allow(dead_code, reason = "each test uses some of it")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the file of the command: the one that cargo built with this test, unless the environment
/// names another because the test runs on another machine.
pub fn file_of_command() -> OsString {
    let given = std::env::var_os("PLIMSOLL_TEST_COMMAND");
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_plimsoll").into())
}

/// A directory that is removed on drop.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(test: &str) -> Self {
        // Several tests of one process may give one name.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-{test}-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(file_of_command())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command that must succeed without warnings; returns its standard output.
pub fn stdout_of(arguments: &[&str]) -> String {
    let output = plimsoll(arguments);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complained}");
    assert_eq!(complained, "", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exactly one line of output; returns the line and the exit
/// code.
pub fn failure_of(arguments: &[&str]) -> (String, i32) {
    let output = plimsoll(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    let complained = String::from_utf8(output.stderr).unwrap();
    let line = complained.strip_suffix('\n').unwrap_or_default();
    assert!(!line.is_empty() && !line.contains('\n'), "{complained}");
    (line.to_owned(), output.status.code().unwrap())
}

/// Returns the last part of a path.
pub fn name(path: &str) -> &str {
    Path::new(path).file_name().unwrap().to_str().unwrap()
}
