//! Runs programs of this package as separate processes.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs this program again with other arguments and settings, and returns its output. Panics if it
/// fails.
pub fn again(settings: &str, arguments: &[&str]) -> String {
    run(&this(), settings, arguments)
}

/// Runs the program of this name that was built beside this one, with these settings, and returns
/// its output. Panics if it fails.
pub fn sibling(name: &str, settings: &str, arguments: &[&str]) -> String {
    run(&this().with_file_name(name), settings, arguments)
}

fn this() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

fn run(program: &PathBuf, settings: &str, arguments: &[&str]) -> String {
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
