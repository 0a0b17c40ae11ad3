//! Tests that need a process of their own: the settings hold from the first allocation on.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::process::Command;

/// Runs `test` in a process with the environment variable `PLIMSOLL` set to `settings`, by calling
/// the test of the name `name` there.
pub fn run(name: &str, settings: &str, test: fn()) {
    said(name, settings, test);
}

/// As [`run`]; returns what the process said on standard error, and `None` in that process itself.
pub fn said(name: &str, settings: impl AsRef<OsStr>, test: fn()) -> Option<String> {
    let settings = settings.as_ref();
    const MARK: &str = "PLIMSOLL_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        test();
        return None;
    }
    let output = Command::new(std::env::current_exe().expect("the test has a path"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env("PLIMSOLL", settings)
        .output()
        .expect("the test can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = format!("{}{errors}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "with {settings:?}: {}\n{said}",
        output.status
    );
    assert!(
        said.contains("1 passed"),
        "no test of that name was run\n{said}"
    );
    eprint!("{said}");
    Some(errors.into_owned())
}
