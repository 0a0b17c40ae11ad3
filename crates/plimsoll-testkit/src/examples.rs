//! Examples of the workspace, which a test runs or loads.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a file among the built examples, which are beside the calling test.
pub fn path(file: &str) -> PathBuf {
    above_test(2).join("examples").join(file)
}

/// Builds examples into the directory of the calling test, with its profile. `arguments` select them, and `directory` is
/// in the workspace.
///
/// # Panics
/// The build fails.
pub fn build(directory: impl AsRef<Path>, arguments: &[&str]) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(["build", "--quiet"])
        .args(arguments)
        .arg("--target-dir")
        .arg(above_test(3))
        .current_dir(directory);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo can be run");
    assert!(status.success(), "{cargo:?}: {status}");
}

/// Returns the path of a file among the built examples. `cargo test` builds them with the tests of their package; for a
/// single test, this function builds it: see [`build`].
pub fn path_of_built(file: &str, directory: impl AsRef<Path>, arguments: &[&str]) -> PathBuf {
    let path = path(file);
    if !path.exists() {
        build(directory, arguments);
    }
    path
}

/// Returns the directory that many levels above the test, `TARGET/PROFILE/deps/TEST`.
fn above_test(levels: usize) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let above = test.ancestors().nth(levels);
    above.expect("the path is that long").to_owned()
}
