//! Measures the cost of Plimsoll inside real programs that allocate much.
//!
//! `inside [ROUNDS [PER CENT]]`: by default 9 rounds and the full work. Builds the programs of
//! `bench/inside`, which takes minutes the first time. Runs each over each allocator: bare, and
//! counted and sampled with default settings. Prints the medians of the ratios of CPU time of
//! alternating rounds, and of instructions by callgrind. Both must print the same checksum.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_bench::arguments::number;
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{callgrind, children, clock, machine, table};

/// Each program with the scale of its timed runs and of its counted runs.
const WORKS: [(&str, usize, &str); 3] = [
    ("jaq", 120, "2"),
    ("boa", 60, "2"),
    ("prettyplease", 60, "2"),
];
const ALLOCATORS: [&str; 3] = ["system", "jemalloc", "mimalloc"];

fn main() {
    let (rounds, per_cent) = (number(1, 9), number(2, 100));
    let programs = build();
    machine::print();
    println!("medians of {rounds} alternating rounds");
    table::head("| program | allocator | bare s | counted | instructions, counted |");
    for (work, scale, counted_scale) in WORKS {
        let scale = (scale * per_cent / 100).max(1).to_string();
        for allocator in ALLOCATORS {
            let programs =
                ["bare", "counted"].map(|kind| programs.join(format!("{kind}_{allocator}")));
            let mut checksum = None;
            let times = alternate::<2>(rounds, |kind| {
                let before = clock::children();
                let printed = children::run(&programs[kind], "", &[work, &scale]);
                let time = clock::children() - before;
                let first = checksum.get_or_insert_with(|| printed.clone());
                assert_eq!(*first, printed, "{work} over {allocator}: output differs");
                time as f64 / 1e9
            });
            let [alone, instructions] = programs
                .map(|program| callgrind::instructions(&program, "", &[work, counted_scale]));
            let ([bare, _], [_, ratio]) = (times.medians(), times.ratios());
            let of_instructions = instructions as f64 / alone as f64;
            println!("| {work} | {allocator} | {bare:.2} | {ratio:.3} | {of_instructions:.3} |");
        }
    }
}

/// Builds the programs and returns their folder.
fn build() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("inside");
    let status = Command::new("cargo")
        .args(["build", "--release", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "{} does not build", package.display());
    package.join("target/release")
}
