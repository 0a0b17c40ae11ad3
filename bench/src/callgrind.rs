//! Instruction counts of programs, by valgrind's callgrind.

use std::path::Path;
use std::process::Command;

/// Returns whether valgrind is installed.
pub fn is_installed() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Returns a command that runs `program` under callgrind, for [`instructions`].
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program);
    command
}

/// Runs a [`command`] and returns its number of instructions. Panics if callgrind prints none.
pub fn instructions(command: &mut Command) -> u64 {
    let output = command.output().expect("valgrind can be run");
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.unwrap_or_else(|| panic!("callgrind printed {report}"));
    number.trim().parse().expect("a number of instructions")
}
