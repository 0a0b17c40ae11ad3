//! What does counting and sampling cost an allocation and its free?
//!
//! Runs the `pairs_*` programs beside this one in turn, bare and counted, and prints medians of the
//! ratios; then counts instructions with callgrind, if that is there. `hot_path [ROUNDS]`, 15
//! rounds unless told otherwise; with one, a tenth of the instructions are counted.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_bench::{machine, quantiles::median};

const ALLOCATORS: [&str; 3] = ["system", "jemalloc", "mimalloc"];
const WORKS: [&str; 2] = ["tight", "random"];

/// Pairs of a timed run, and of the two counted ones whose difference leaves the start-up out.
const TIMED: &str = "10000000";
const COUNTED: [u64; 2] = [1_000_000, 3_000_000];
const COUNTED_IN_SHORT: [u64; 2] = [100_000, 300_000];

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(15, |rounds| rounds.parse().expect("a number of rounds"));
    println!("{}\n", machine::describe());
    println!("processor time of a pair, medians of {rounds} alternating rounds");
    println!(
        "| allocator | pairs | threads | bare ns | counted ns | ratio |\n|---|---|---|---|---|---|"
    );
    for allocator in ALLOCATORS {
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
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\nno valgrind: instructions are not counted");
        return;
    }
    let pairs = if rounds == 1 {
        COUNTED_IN_SHORT
    } else {
        COUNTED
    };
    let counted = pairs[1] - pairs[0];
    println!("\ninstructions of a pair, by callgrind over {counted} pairs");
    println!("| allocator | pairs | bare | counted | added |\n|---|---|---|---|---|");
    for allocator in ALLOCATORS {
        for work in WORKS {
            let [bare, counted] = ["bare", "plimsoll"]
                .map(|kind| instructions(&program(kind, allocator), work, pairs));
            println!(
                "| {allocator} | {work} | {bare:.1} | {counted:.1} | {:+.1} |",
                counted - bare
            );
        }
    }
}

/// A program that was built with this one.
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
    let [few, many] = pairs.map(|pairs| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args([work, &pairs.to_string()])
            .output()
            .expect("valgrind can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let collected = said
            .lines()
            .find_map(|line| line.split_once("Collected : "));
        let (_, number) = collected.unwrap_or_else(|| panic!("callgrind said {said}"));
        number
            .trim()
            .parse::<u64>()
            .expect("a number of instructions")
    });
    (many - few) as f64 / (pairs[1] - pairs[0]) as f64
}
