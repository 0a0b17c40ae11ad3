//! Measures the cost of Plimsoll inside real programs that allocate much.
//!
//! `inside [ROUNDS [SCALE [lto]]]`: by default 9 rounds, the full work and no optimization at link
//! time. Builds the programs of `bench/inside`, which takes minutes the first time. Runs each over
//! each allocator: bare, sampled only, and counted with default settings. Prints the medians of the
//! ratios of CPU time of alternating rounds, and of instructions if callgrind is installed. All
//! variants must print the same checksum.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_bench::{callgrind, machine, quantiles::median};

/// Each program with the scale of its timed runs and of its counted runs.
const WORKS: [(&str, usize, usize); 3] = [("jaq", 120, 2), ("boa", 60, 2), ("prettyplease", 60, 2)];
const ALLOCATORS: [&str; 3] = ["system", "jemalloc", "mimalloc"];
const KINDS: [&str; 3] = ["bare", "sampled", "counted"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments.next().map_or(default, |word| {
            word.parse()
                .unwrap_or_else(|_| panic!("{word} is not a number"))
        })
    };
    let (rounds, per_cent) = (number(9), number(100));
    let profile = if std::env::args().any(|word| word == "lto") {
        "lto"
    } else {
        "release"
    };
    let programs = build(profile);
    println!("{}", machine::describe());
    println!("profile {profile}, medians of {rounds} alternating rounds\n");
    println!(
        "| program | allocator | bare s | sampled | counted | instructions, sampled | instructions, counted |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (work, scale, counted_scale) in WORKS {
        let scale = (scale * per_cent / 100).max(1);
        for allocator in ALLOCATORS {
            let programs = KINDS.map(|kind| programs.join(format!("{kind}_{allocator}")));
            let mut times = [const { Vec::new() }; 3];
            let mut checksum = None;
            for round in 0..rounds {
                let mut order = [0, 1, 2];
                if round % 2 == 1 {
                    order.reverse();
                }
                for kind in order {
                    let (time, printed) = run(&programs[kind], work, scale);
                    let first = checksum.get_or_insert_with(|| printed.clone());
                    assert_eq!(*first, printed, "{work} over {allocator}: output differs");
                    times[kind].push(time);
                }
            }
            let ratio = |kind: usize| {
                let pairs = times[kind].iter().zip(&times[0]);
                median(&mut pairs.map(|(time, bare)| time / bare).collect::<Vec<_>>())
            };
            let (sampled, counted) = (ratio(1), ratio(2));
            let instructions = programs.map(|program| {
                let mut command = callgrind::command(&program);
                command.args([work, &counted_scale.to_string()]);
                callgrind::is_installed().then(|| callgrind::instructions(&mut command))
            });
            let of_instructions = |kind: usize| match (instructions[kind], instructions[0]) {
                (Some(these), Some(bare)) => format!("{:.3}", these as f64 / bare as f64),
                _ => "-".to_owned(),
            };
            println!(
                "| {work} | {allocator} | {:.2} | {sampled:.3} | {counted:.3} | {} | {} |",
                median(&mut times[0]),
                of_instructions(1),
                of_instructions(2),
            );
        }
    }
}

/// Builds the programs and returns their folder.
fn build(profile: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("inside");
    let status = Command::new("cargo")
        .args(["build", "--profile", profile, "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "{} does not build", package.display());
    package.join("target").join(profile)
}

/// Runs a program; returns its CPU time in seconds and what it printed.
fn run(program: &Path, work: &str, scale: usize) -> (f64, Vec<u8>) {
    let before = children_cpu_seconds();
    let output = Command::new(program)
        .args([work, &scale.to_string()])
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(
        output.status.success(),
        "{} {work} fails",
        program.display()
    );
    (children_cpu_seconds() - before, output.stdout)
}

/// CPU time, user and system, of all children that were waited for.
fn children_cpu_seconds() -> f64 {
    // SAFETY: all zeros is a valid `rusage`, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let failed = libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        assert_eq!(failed, 0, "getrusage works");
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
