//! Measures the cost of block and mutex profiles for programs with permanently contended locks, and
//! for uncontended locks.
//!
//! `waits [ROUNDS]`, 15 rounds by default. Prints the CPU time of an operation, as a ratio to the
//! same program without Plimsoll. Each variant is a separate process; the ratios are medians of
//! alternating rounds. *off*: linked in, and switched off; *sampled*:
//! `mutex_fraction=100,block_rate=10us`; *all*: every event with its stack. In the first three cases
//! every operation waits, as the second column shows: the worst possible case.
//!
//! Stacks are unwound by frame pointers if the programs were built with them, otherwise by tables.

use plimsoll_bench::arguments::number;
use plimsoll_bench::children::{beside, numbers, run};
use plimsoll_bench::quantiles::median;
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::waits::{CASES, WAITING};
use plimsoll_bench::{machine, table};

/// The program and settings of each variant: bare, off, sampled and all.
const WAYS: [(&str, &str); 4] = [
    ("waits_bare", ""),
    ("waits_plimsoll", ""),
    ("waits_plimsoll", "mutex_fraction=100,block_rate=10us"),
    ("waits_plimsoll", "mutex_fraction=1,block_rate=1ns"),
];

fn main() {
    let rounds = number(1, 15);
    machine::print();
    println!("processor time of an operation; medians of {rounds} alternating rounds");
    table::head("| case | waits per operation | bare | off | sampled | all |");
    for (at, (case, _)) in CASES.into_iter().enumerate() {
        let operations = match (rounds, at < WAITING) {
            (1, true) => "5000",
            (_, true) => "20000",
            (1, false) => "1000000",
            (_, false) => "5000000",
        };
        let mut waits = Vec::new();
        let times = alternate::<4>(rounds, |way| {
            let (program, settings) = WAYS[way];
            let figures = numbers(&run(&beside(program), settings, &[case, operations]));
            waits.push(figures[1]);
            figures[0]
        });
        let waits = median(&waits);
        assert!(at >= WAITING || waits > 0.0, "{case}: no operation waited");
        let bare = times.medians()[0];
        let [_, off, sampled, all] = times.ratios();
        println!("| {case} | {waits:.2} | {bare:.1} ns | {off:.3} | {sampled:.3} | {all:.3} |");
    }
    println!(
        "\naims: off 1.00; where every operation waits: sampled 1.06, all 1.12 by frame pointers and 1.20 by tables"
    );
}
