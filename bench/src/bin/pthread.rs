//! Measures the cost of the feature `pthread` for uncontended locks of the C library.
//!
//! `pthread [ROUNDS]`, 15 rounds by default. Prints the CPU time of locking and unlocking, as a
//! ratio to the same program without Plimsoll. Each variant is a separate process; the ratios are
//! medians of alternating rounds. *linked*: linked in, not started; *started*: nothing is recorded,
//! and waits are timed for the total; *recording*: `mutex_fraction=1,block_rate=1ns`. Then counts
//! instructions by callgrind, if it is installed.
//!
//! Needs the feature `pthread` of this package.

use plimsoll_bench::arguments::number;
use plimsoll_bench::children::{beside, numbers, run};
use plimsoll_bench::pthread::CASES;
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{callgrind, machine, table};

/// The program and settings of each variant: bare, linked, started and recording.
const WAYS: [(&str, &str); 4] = [
    ("pthread_bare", ""),
    ("pthread_linked", ""),
    ("pthread_started", ""),
    ("pthread_started", "mutex_fraction=1,block_rate=1ns"),
];

const HEAD: &str = "| case | bare | linked | started | recording |";

/// Pairs of the two counted runs.
const COUNTED: [u64; 2] = [100_000, 300_000];

fn main() {
    let rounds = number(1, 15);
    machine::print();
    println!("processor time of a pair; medians of {rounds} alternating rounds");
    table::head(HEAD);
    let pairs = match rounds {
        1 => "1000000",
        _ => "10000000",
    };
    for (case, ..) in CASES {
        let times = alternate::<4>(rounds, |way| {
            let (program, settings) = WAYS[way];
            numbers(&run(&beside(program), settings, &[case, pairs]))[0]
        });
        let (medians, ratios) = (times.medians(), times.ratios());
        print!("| {case} | {:.1} ns |", medians[0]);
        for (time, ratio) in medians.iter().zip(ratios).skip(1) {
            print!(" {time:.1} ns, {ratio:.3} |");
        }
        println!();
    }
    if callgrind::is_missing() {
        return;
    }
    println!("\ninstructions of a pair, by callgrind over 200,000 pairs");
    table::head(HEAD);
    for (case, ..) in CASES {
        // Each run is preceded by a tenth of it, as a warm-up.
        let [bare, with @ ..] = WAYS.map(|(program, settings)| {
            callgrind::each(&beside(program), settings, &[case], COUNTED) / 1.1
        });
        print!("| {case} | {bare:.1} |");
        for with in with {
            print!(" {:+.1} |", with - bare);
        }
        println!();
    }
}
