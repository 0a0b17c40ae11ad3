//! Runs other programs and returns their output.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Returns a command without the variables that cargo or the test run sets for the tests
/// themselves.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_INCREMENTAL",
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "RUST_TEST_THREADS",
    ] {
        command.env_remove(variable);
    }
    command
}

pub fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command that must succeed, and returns its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    String::from_utf8(output.stdout).expect("text")
}

pub fn rustc() -> Command {
    command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// Returns the directory of the shared standard library.
pub fn rust_libraries() -> PathBuf {
    succeed(rustc().args(["--print", "target-libdir"]))
        .trim()
        .into()
}

/// Returns whether the C compiler succeeds with these arguments.
pub fn c_compiler_can(arguments: &[&str]) -> bool {
    command("cc")
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}
