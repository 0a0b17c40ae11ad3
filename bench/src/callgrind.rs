//! Instruction counts of programs, by valgrind's callgrind.

use std::path::Path;
use std::process::Command;

/// Returns whether valgrind is missing, and says so.
pub fn is_missing() -> bool {
    let is_missing = Command::new("valgrind").arg("--version").output().is_err();
    if is_missing {
        println!("\nno valgrind: instructions are not counted");
    }
    is_missing
}

/// Runs a program with these arguments and settings, and returns its number of instructions. Panics
/// if callgrind prints none.
pub fn instructions(program: &Path, settings: &str, arguments: &[&str]) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .env("PLIMSOLL", settings)
        .output()
        .expect("valgrind can be run");
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.unwrap_or_else(|| panic!("callgrind printed {report}"));
    number.trim().parse().expect("a number of instructions")
}

/// Returns the instructions of one of the repetitions whose number is the program's last argument:
/// the difference of two runs, which excludes the start-up.
pub fn each(program: &Path, settings: &str, arguments: &[&str], repetitions: [u64; 2]) -> f64 {
    let [few, many] = repetitions.map(|number| {
        let number = number.to_string();
        let mut arguments = arguments.to_vec();
        arguments.push(&number);
        instructions(program, settings, &arguments)
    });
    (many - few) as f64 / (repetitions[1] - repetitions[0]) as f64
}
