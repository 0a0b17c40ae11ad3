//! Measures what `plimsoll run` adds to programs that end at once.
//!
//! `start_up PLIMSOLL [ROUNDS]`: the path of the command, and 20 rounds by default. Each program runs
//! without Plimsoll, by `plimsoll run --quiet` and by `plimsoll run`, in alternation. The CPU time includes the
//! program and the command. Programs that are not installed are skipped.

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};

use plimsoll_bench::quantiles::median;
use plimsoll_bench::{environment, machine};

const PROGRAMS: [&[&str]; 5] = [
    &["true"],
    &["python3", "-c", "pass"],
    &["git", "--version"],
    &["node", "-e", "1"],
    &["java", "-version"],
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let plimsoll = arguments.next().expect("the path of plimsoll");
    let rounds = arguments
        .next()
        .map_or(20, |rounds| rounds.parse().expect("a number of rounds"));
    println!("{}\n", machine::describe());
    println!("CPU time in ms, medians of {rounds} rounds");
    println!("| program | alone | added by run --quiet | added by run |\n|---|---|---|---|");
    let ways: [&[&str]; 3] = [
        &[],
        &[&plimsoll, "run", "--quiet", "--"],
        &[&plimsoll, "run", "--"],
    ];
    for program in PROGRAMS {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (way, times) in ways.iter().zip(&mut times) {
                let line: Vec<&str> = way.iter().chain(program).copied().collect();
                times.extend(cpu_ms(&line));
            }
        }
        if times.iter().any(Vec::is_empty) {
            println!("{} cannot be run: skipped", program[0]);
            continue;
        }
        let [alone, quiet, loud] = times.map(|mut times| median(&mut times));
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
    let before = children_ms();
    let mut command = Command::new(line[0]);
    let status = environment::plain(&mut command)
        .args(&line[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_right = status.is_ok_and(|status| status.success());
    is_right.then(|| children_ms() - before)
}

/// Returns the CPU time of all children that have ended.
fn children_ms() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable, and zero is valid for its integers.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}
