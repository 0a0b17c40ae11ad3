//! Measures the cost of the feature `pthread` for uncontended locks of the C library.
//!
//! `pthread [ROUNDS]`, 15 rounds by default. Prints the CPU time of locking and unlocking, as a
//! ratio to the same program without Plimsoll. Each variant is a separate process; the ratios are
//! medians of alternating rounds. *linked*: linked in, not started; *started*: nothing is recorded,
//! and waits are timed for the total; *recording*: `mutex_fraction=1,block_rate=1ns`. Then counts
//! instructions by callgrind, if it is installed.
//!
//! Needs the feature `pthread` of this package.

use plimsoll_bench::pthread::CASES;
use plimsoll_bench::quantiles::median;
use plimsoll_bench::{callgrind, children, machine};

/// The name, program and settings of each variant.
const WAYS: [(&str, &str, &str); 4] = [
    ("bare", "pthread_bare", ""),
    ("linked", "pthread_linked", ""),
    ("started", "pthread_started", ""),
    (
        "recording",
        "pthread_started",
        "mutex_fraction=1,block_rate=1ns",
    ),
];

/// Pairs of the two counted runs, whose difference excludes the start-up.
const COUNTED: [usize; 2] = [100_000, 300_000];

fn main() {
    let rounds: usize = std::env::args()
        .nth(1)
        .map_or(15, |rounds| rounds.parse().expect("a number of rounds"));
    println!("{}\n", machine::describe());
    println!("processor time of a pair; medians of {rounds} alternating rounds");
    println!("| case | bare | linked | started | recording |\n|---|---|---|---|---|");
    let pairs = if rounds == 1 { 1_000_000 } else { 10_000_000 };
    for (case, ..) in CASES {
        let mut times = [const { Vec::new() }; WAYS.len()];
        for _ in 0..rounds {
            for ((_, program, settings), times) in WAYS.iter().zip(&mut times) {
                let said = children::sibling(program, settings, &[case, &pairs.to_string()]);
                times.push(said.trim().parse::<f64>().expect("a number"));
            }
        }
        let ratio = |way: usize| {
            let pairs = times[way].iter().zip(&times[0]);
            median(&mut pairs.map(|(with, bare)| with / bare).collect::<Vec<_>>())
        };
        let ratios = [1, 2, 3].map(ratio);
        let times = times.each_mut().map(|times| median(times));
        println!(
            "| {case} | {:.1} ns | {:.1} ns, {:.3} | {:.1} ns, {:.3} | {:.1} ns, {:.3} |",
            times[0], times[1], ratios[0], times[2], ratios[1], times[3], ratios[2]
        );
    }
    if !callgrind::is_installed() {
        return println!("\nno valgrind: instructions are not counted");
    }
    println!("\ninstructions of a pair, by callgrind over 200,000 pairs");
    println!("| case | bare | linked | started | recording |\n|---|---|---|---|---|");
    for (case, ..) in CASES {
        let [bare, linked, started, recording] = WAYS.map(|way| instructions(way, case));
        println!(
            "| {case} | {bare:.1} | {:+.1} | {:+.1} | {:+.1} |",
            linked - bare,
            started - bare,
            recording - bare
        );
    }
}

fn instructions((_, program, settings): (&str, &str, &str), case: &str) -> f64 {
    let here = std::env::current_exe().expect("this program has a path");
    let [few, many] = COUNTED.map(|pairs| {
        let mut command = callgrind::command(&here.with_file_name(program));
        command.args([case, &pairs.to_string()]);
        callgrind::instructions(command.env("PLIMSOLL", settings)) as f64
    });
    // Each run is preceded by a tenth of it, as a warm-up.
    (many - few) / ((COUNTED[1] - COUNTED[0]) as f64 * 1.1)
}
