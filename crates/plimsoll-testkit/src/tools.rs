//! Programs of others that tests run if they are there.

use std::path::PathBuf;
use std::process::Command;

use crate::skips;

/// Returns Go's command: `PLIMSOLL_GO`, or `go` in `PATH`. Without one, the calling test is skipped.
///
/// # Panics
/// `PLIMSOLL_GO` names a program that does not run.
pub fn go() -> Option<PathBuf> {
    let promised = std::env::var_os("PLIMSOLL_GO").map(PathBuf::from);
    let is_promised = promised.is_some();
    runs(promised.unwrap_or("go".into()), "version", is_promised)
}

/// Returns a program of Prometheus, in the directory `PLIMSOLL_PROMETHEUS` or in `PATH`. Without one, the calling test is
/// skipped.
///
/// # Panics
/// The directory has no such program that runs.
pub fn prometheus(name: &str) -> Option<PathBuf> {
    let promised = std::env::var_os("PLIMSOLL_PROMETHEUS").map(PathBuf::from);
    let is_promised = promised.is_some();
    let path = promised.unwrap_or_default().join(name);
    runs(path, "--version", is_promised)
}

/// Returns the browser that `PLIMSOLL_CHROMIUM` names. Without one, the calling test is skipped.
pub fn chromium() -> Option<PathBuf> {
    let promised = std::env::var_os("PLIMSOLL_CHROMIUM").map(PathBuf::from);
    if promised.is_none() {
        skips::note(format_args!("PLIMSOLL_CHROMIUM is not set"));
    }
    promised
}

/// Returns a program if it runs with an argument that only prints something.
///
/// # Panics
/// It is promised, and does not run.
fn runs(program: PathBuf, argument: &str, is_promised: bool) -> Option<PathBuf> {
    let output = Command::new(&program).arg(argument).output();
    let is_found = output.is_ok_and(|output| output.status.success());
    assert!(
        is_found || !is_promised,
        "{} does not run",
        program.display()
    );
    if !is_found {
        skips::note(format_args!("{} is not installed", program.display()));
    }
    is_found.then_some(program)
}
