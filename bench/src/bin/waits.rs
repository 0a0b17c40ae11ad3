//! Measures the cost of block and mutex profiles for programs with permanently contended locks, and
//! for uncontended locks.
//!
//! `waits [ROUNDS]`, 15 rounds by default. Prints the CPU time of an operation, as a ratio to the
//! same program without Plimsoll. Each variant is a separate process; the ratios are medians of
//! alternating rounds. *off*: linked in, and switched off; *sampled*:
//! `mutex_fraction=100,block_rate=10us`; *all*: every event with its stack. In the first five cases
//! every operation waits, as the second column shows: the worst possible case.
//!
//! Stacks are unwound by frame pointers if the programs were built with them, otherwise by tables.

use plimsoll_bench::quantiles::median;
use plimsoll_bench::waits::{CASES, WAITING};
use plimsoll_bench::{children, machine};

/// Program, settings, aims for those that wait and for those that do not.
const WAYS: [(&str, &str, &str); 4] = [
    ("bare", "waits_bare", ""),
    ("off", "waits_plimsoll", ""),
    (
        "sampled",
        "waits_plimsoll",
        "mutex_fraction=100,block_rate=10us",
    ),
    ("all", "waits_plimsoll", "mutex_fraction=1,block_rate=1ns"),
];

fn main() {
    let rounds: usize = std::env::args()
        .nth(1)
        .map_or(15, |rounds| rounds.parse().expect("a number of rounds"));
    println!("{}\n", machine::describe());
    println!("processor time of an operation; medians of {rounds} alternating rounds");
    println!(
        "| case | waits per operation | bare | off | sampled | all |\n|---|---|---|---|---|---|"
    );
    for (at, (case, _)) in CASES.into_iter().enumerate() {
        let operations = match (rounds, at < WAITING) {
            (1, true) => 5_000,
            (_, true) => 20_000,
            (1, false) => 1_000_000,
            (_, false) => 5_000_000,
        };
        let mut times = [const { Vec::new() }; WAYS.len()];
        let mut waits = Vec::new();
        for _ in 0..rounds {
            for ((_, program, settings), times) in WAYS.iter().zip(&mut times) {
                let said = children::sibling(program, settings, &[case, &operations.to_string()]);
                let mut numbers = said.split_whitespace().map(|number| number.parse::<f64>());
                let mut next = || numbers.next().and_then(Result::ok).expect("a number");
                times.push(next());
                waits.push(next());
            }
        }
        let waits = median(&mut waits);
        assert!(at >= WAITING || waits > 0.0, "{case}: no operation waited");
        let ratio = |way: usize| {
            let mut ratios: Vec<f64> = times[way]
                .iter()
                .zip(&times[0])
                .map(|(with, bare)| with / bare)
                .collect();
            median(&mut ratios)
        };
        let ratios = [1, 2, 3].map(ratio);
        println!(
            "| {case} | {:.2} | {:.1} ns | {:.3} | {:.3} | {:.3} |",
            waits,
            median(&mut times[0]),
            ratios[0],
            ratios[1],
            ratios[2]
        );
    }
    println!(
        "\naims: off 1.00, getppid 1.01; where every operation waits: sampled 1.06, all 1.12 by frame pointers and 1.20 by tables"
    );
}
