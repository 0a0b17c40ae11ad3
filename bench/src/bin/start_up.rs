//! Measures what `plimsoll run` adds to programs that end at once.
//!
//! `start_up PLIMSOLL [ROUNDS]`: the path of the command, and 20 rounds by default. Each program runs
//! without Plimsoll, by `plimsoll run --quiet` and by `plimsoll run`, in alternation. The CPU time includes the
//! program and the command. Programs that are not installed are skipped.

use std::process::{Command, Stdio};

use plimsoll_bench::arguments::number;
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{clock, environment, machine, table};

const PROGRAMS: [&[&str]; 5] = [
    &["true"],
    &["python3", "-c", "pass"],
    &["git", "--version"],
    &["node", "-e", "1"],
    &["java", "-version"],
];

fn main() {
    let plimsoll = std::env::args().nth(1).expect("the path of plimsoll");
    let rounds = number(2, 20);
    machine::print();
    println!("CPU time in ms, medians of {rounds} rounds");
    table::head("| program | alone | added by run --quiet | added by run |");
    let ways: [&[&str]; 3] = [
        &[],
        &[&plimsoll, "run", "--quiet", "--"],
        &[&plimsoll, "run", "--"],
    ];
    for program in PROGRAMS {
        let lines = ways.map(|way| [way, program].concat());
        if lines.iter().any(|line| cpu_ms(line).is_none()) {
            println!("{} cannot be run: skipped", program[0]);
            continue;
        }
        let times = alternate::<3>(rounds, |way| cpu_ms(&lines[way]).expect("it ran before"));
        let [alone, quiet, loud] = times.medians();
        println!(
            "| {} | {alone:.1} | {:.1} | {:.1} |",
            program.join(" "),
            quiet - alone,
            loud - alone
        );
    }
}

/// Returns the CPU time of a command and of its children; `None` if it cannot be run or fails.
fn cpu_ms(line: &[&str]) -> Option<f64> {
    let before = clock::children();
    let mut command = Command::new(line[0]);
    let status = environment::plain(&mut command)
        .args(&line[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_right = status.is_ok_and(|status| status.success());
    is_right.then(|| (clock::children() - before) as f64 / 1e6)
}
