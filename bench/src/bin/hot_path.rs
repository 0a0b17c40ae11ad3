//! Measures the cost of counting and sampling for an allocation and its free.
//!
//! Runs the `pairs_*` programs beside this one in turn, bare and counted, and prints medians of the
//! ratios. Then counts instructions with callgrind, if it is installed, and fails if more than the
//! limit are added: then the fast path has lost its inlining. `hot_path [ROUNDS [ALLOCATOR...]]`, 15
//! rounds over all allocators by default; with 1, a twentieth of the instructions are counted, and
//! with 0 nothing is timed.
//!
//! The profile `release` shows the cost without optimization at link time, `lto` the cost with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_bench::{callgrind, machine, quantiles::median};

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

/// Pairs of a timed run, and of the two counted runs, whose difference excludes the start-up.
const TIMED: &str = "10000000";
const COUNTED: [u64; 2] = [1_000_000, 3_000_000];
const COUNTED_IN_SHORT: [u64; 2] = [50_000, 150_000];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments
        .next()
        .map_or(15, |rounds| rounds.parse().expect("a number of rounds"));
    let mut allocators: Vec<String> = arguments.collect();
    for allocator in &allocators {
        let is_known = ALLOCATORS.contains(&allocator.as_str());
        assert!(is_known, "{allocator} is none of {}", ALLOCATORS.join(", "));
    }
    if allocators.is_empty() {
        allocators = ALLOCATORS.map(str::to_owned).to_vec();
    }
    println!("{}\n", machine::describe());
    if rounds > 0 {
        print_times(rounds, &allocators);
    }
    print_instructions(rounds, &allocators);
}

/// Times pairs, bare and counted in turn.
fn print_times(rounds: usize, allocators: &[String]) {
    println!("processor time of a pair, medians of {rounds} alternating rounds");
    println!(
        "| allocator | pairs | threads | bare ns | counted ns | ratio |\n|---|---|---|---|---|---|"
    );
    for allocator in allocators {
        for work in WORKS {
            for threads in ["1", "2"] {
                let (mut bare, mut counted, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..rounds {
                    let times = ["bare", "plimsoll"]
                        .map(|kind| time(&program(kind, allocator), work, threads));
                    bare.push(times[0]);
                    counted.push(times[1]);
                    ratios.push(times[1] / times[0]);
                }
                println!(
                    "| {allocator} | {work} | {threads} | {:.2} | {:.2} | {:.3} |",
                    median(&mut bare),
                    median(&mut counted),
                    median(&mut ratios)
                );
            }
        }
    }
}

/// Counts instructions of pairs. Panics if more are added than [`LIMITS`] allows.
fn print_instructions(rounds: usize, allocators: &[String]) {
    if !callgrind::is_installed() {
        println!("\nno valgrind: instructions are not counted");
        return;
    }
    let pairs = if rounds <= 1 {
        COUNTED_IN_SHORT
    } else {
        COUNTED
    };
    let counted = pairs[1] - pairs[0];
    println!("\ninstructions of a pair, by callgrind over {counted} pairs");
    println!("| allocator | pairs | bare | counted | added | limit |\n|---|---|---|---|---|---|");
    let mut above = Vec::new();
    for allocator in allocators {
        for (work, limit) in LIMITS {
            let [bare, counted] = ["bare", "plimsoll"]
                .map(|kind| instructions(&program(kind, allocator), work, pairs));
            let added = counted - bare;
            println!("| {allocator} | {work} | {bare:.1} | {counted:.1} | {added:+.1} | {limit} |");
            if added > limit {
                above.push(format!("{work} over {allocator}"));
            }
        }
    }
    assert!(above.is_empty(), "above the limit: {}", above.join(", "));
}

/// Returns the path of a program that was built with this one.
fn program(kind: &str, allocator: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    here.with_file_name(format!("pairs_{kind}_{allocator}"))
}

fn time(program: &Path, work: &str, threads: &str) -> f64 {
    let output = Command::new(program).args([work, TIMED, threads]).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{}: {error}; build all of this package", program.display())
    });
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{} printed {text}", program.display()))
}

fn instructions(program: &Path, work: &str, pairs: [u64; 2]) -> f64 {
    // Pairs of large blocks take the allocator many times as long.
    let pairs = pairs.map(|pairs| if work == "large" { pairs / 5 } else { pairs });
    let [few, many] = pairs.map(|pairs| {
        callgrind::instructions(callgrind::command(program).args([work, &pairs.to_string()]))
    });
    (many - few) as f64 / (pairs[1] - pairs[0]) as f64
}
