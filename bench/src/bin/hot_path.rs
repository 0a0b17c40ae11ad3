//! Measures the cost of counting and sampling for an allocation and its free.
//!
//! Runs the `pairs_*` programs beside this one in turn, bare and counted, and prints medians of the
//! ratios. Then counts instructions with callgrind, if it is installed, and fails if more than the
//! limit are added: then the fast path has lost its inlining. `hot_path [ROUNDS [ALLOCATOR...]]`, 15
//! rounds over all allocators by default; with 1, a twentieth of the instructions are counted, and
//! with 0 nothing is timed.
//!
//! The profile `release` shows the cost without optimization at link time, `lto` the cost with it.

use std::path::PathBuf;

use plimsoll_bench::arguments::number;
use plimsoll_bench::children::{beside, numbers, run};
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{callgrind, machine, table};

const ALLOCATORS: [&str; 3] = ["system", "jemalloc", "mimalloc"];
const WORKS: [&str; 2] = ["tight", "random"];
/// The work whose instructions are counted, with the maximum that may be added to a pair or a
/// reallocation.
const LIMITS: [(&str, f64); 6] = [
    ("tight", 45.0),
    ("random", 45.0),
    ("zeroed", 65.0),
    // The C library's own reallocation takes 380 to 400 instructions, and 450 to 465 below
    // Plimsoll. The number depends on the address of its heap, which the environment changes.
    ("realloc", 100.0),
    ("larger", 120.0),
    ("large", 600.0),
];

/// Pairs of a timed run, and of the two counted runs.
const TIMED: &str = "10000000";
const COUNTED: [u64; 2] = [1_000_000, 3_000_000];
const COUNTED_IN_SHORT: [u64; 2] = [50_000, 150_000];

fn main() {
    let rounds = number(1, 15);
    let mut allocators: Vec<String> = std::env::args().skip(2).collect();
    if allocators.is_empty() {
        allocators = ALLOCATORS.map(str::to_owned).to_vec();
    }
    machine::print();
    if rounds > 0 {
        print_times(rounds, &allocators);
    }
    print_instructions(rounds, &allocators);
}

/// Returns the bare and the counted program of an allocator.
fn programs(allocator: &str) -> [PathBuf; 2] {
    ["bare", "plimsoll"].map(|kind| beside(&format!("pairs_{kind}_{allocator}")))
}

/// Times pairs, bare and counted in turn.
fn print_times(rounds: usize, allocators: &[String]) {
    println!("processor time of a pair, medians of {rounds} alternating rounds");
    table::head("| allocator | pairs | threads | bare ns | counted ns | ratio |");
    for allocator in allocators {
        let programs = programs(allocator);
        for work in WORKS {
            for threads in ["1", "2"] {
                let times = alternate::<2>(rounds, |kind| {
                    numbers(&run(&programs[kind], "", &[work, TIMED, threads]))[0]
                });
                let [bare, counted] = times.medians();
                let [_, ratio] = times.ratios();
                println!(
                    "| {allocator} | {work} | {threads} | {bare:.2} | {counted:.2} | {ratio:.3} |"
                );
            }
        }
    }
}

/// Counts instructions of pairs. Panics if more are added than [`LIMITS`] allows.
fn print_instructions(rounds: usize, allocators: &[String]) {
    if callgrind::is_missing() {
        return;
    }
    let pairs = match rounds {
        0 | 1 => COUNTED_IN_SHORT,
        _ => COUNTED,
    };
    let counted = pairs[1] - pairs[0];
    println!("\ninstructions of a pair, by callgrind over {counted} pairs");
    table::head("| allocator | pairs | bare | counted | added | limit |");
    let mut above = Vec::new();
    for allocator in allocators {
        for (work, limit) in LIMITS {
            // Pairs of large blocks take the allocator many times as long.
            let pairs = pairs.map(|pairs| if work == "large" { pairs / 5 } else { pairs });
            let [bare, counted] =
                programs(allocator).map(|program| callgrind::each(&program, "", &[work], pairs));
            let added = counted - bare;
            println!("| {allocator} | {work} | {bare:.1} | {counted:.1} | {added:+.1} | {limit} |");
            if added > limit {
                above.push(format!("{work} over {allocator}"));
            }
        }
    }
    assert!(above.is_empty(), "above the limit: {}", above.join(", "));
}
