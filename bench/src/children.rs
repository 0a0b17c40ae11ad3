//! Runs programs of this package as separate processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of this program.
pub fn this() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

/// Returns the path of the program of this name that was built beside this one.
pub fn beside(name: &str) -> PathBuf {
    this().with_file_name(name)
}

/// Runs this program again with other arguments and settings, and returns its output. Panics if it
/// fails.
pub fn again(settings: &str, arguments: &[&str]) -> String {
    run(&this(), settings, arguments)
}

/// Runs a program with these settings, and returns its output. Panics if it fails.
pub fn run(program: &Path, settings: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("PLIMSOLL", settings)
        .stderr(Stdio::inherit())
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!("{}: {error}; build all of this package", program.display())
    });
    let (program, status) = (program.display(), output.status);
    assert!(
        status.success(),
        "{program} {} with PLIMSOLL={settings}: {status}",
        arguments.join(" ")
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the numbers in a program's output. Panics if there is something else.
pub fn numbers(output: &str) -> Vec<f64> {
    let words = output.split_whitespace();
    words.map(|word| word.parse().expect(output)).collect()
}
