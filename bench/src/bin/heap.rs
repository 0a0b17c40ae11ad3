//! Compares `plimsoll-heap`, which counts exactly, with other allocators alone and below Plimsoll.
//!
//! `heap [ROUNDS [PER CENT]]`: by default 7 rounds and the full work. Builds the programs of
//! `bench/inside`, optimized at link time, which takes minutes the first time. Runs each work over each
//! allocator in alternating rounds, and prints medians of the ratios to jemalloc: CPU time, and the
//! maximum of the resident memory. All variants must print the same checksum.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_bench::{callgrind, machine, quantiles::median};

const JEMALLOC: usize = 1;
const ALLOCATORS: [&str; 8] = [
    "bare_system",
    "bare_jemalloc",
    "bare_mimalloc",
    "counted_system",
    "counted_jemalloc",
    "counted_mimalloc",
    "bare_heap",
    "sampled_heap",
];

/// A work with its scale and its number of threads, and whether it prints a time in place of a checksum.
struct Work {
    name: &'static str,
    scale: usize,
    threads: usize,
    prints_time: bool,
}

const fn work(name: &'static str, scale: usize, threads: usize) -> Work {
    let prints_time = false;
    Work {
        name,
        scale,
        threads,
        prints_time,
    }
}

const fn pairs(name: &'static str, scale: usize, threads: usize) -> Work {
    Work {
        prints_time: true,
        ..work(name, scale, threads)
    }
}

const WORKS: [Work; 16] = [
    pairs("tight", 20_000_000, 1),
    pairs("tight", 10_000_000, 2),
    pairs("tight", 300_000, 64),
    pairs("random", 10_000_000, 1),
    pairs("random", 5_000_000, 2),
    pairs("random", 150_000, 64),
    pairs("larger", 5_000_000, 1),
    pairs("large", 500_000, 1),
    work("exchange", 100, 2),
    work("exchange", 100, 64),
    work("churn", 200, 2),
    work("churn", 200, 64),
    work("jaq", 60, 1),
    work("boa", 30, 1),
    work("prettyplease", 30, 1),
    work("index", 100, 4),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments.next().map_or(default, |word| {
            word.parse()
                .unwrap_or_else(|_| panic!("{word} is not a number"))
        })
    };
    let (rounds, per_cent) = (number(7), number(100));
    let programs = build();
    println!("{}", machine::describe());
    println!("medians of {rounds} alternating rounds, as ratios to jemalloc alone\n");
    let header = || {
        println!("| work | threads | jemalloc | {} |", ALLOCATORS.join(" | "));
        println!("|---|---|---|{}", "---|".repeat(ALLOCATORS.len()));
    };
    println!("CPU time\n");
    header();
    let mut memory = Vec::new();
    for work in WORKS {
        let scale = (work.scale * per_cent / 100).max(1);
        let mut results: Vec<Vec<Run>> = (0..ALLOCATORS.len()).map(|_| Vec::new()).collect();
        let mut checksum = None;
        for round in 0..rounds {
            for place in 0..ALLOCATORS.len() {
                let place = if round % 2 == 0 {
                    place
                } else {
                    ALLOCATORS.len() - 1 - place
                };
                let run = run(&programs.join(ALLOCATORS[place]), &work, scale);
                if !work.prints_time {
                    let first = checksum.get_or_insert_with(|| run.printed.clone());
                    assert_eq!(*first, run.printed, "{}: {}", work.name, ALLOCATORS[place]);
                }
                results[place].push(run);
            }
        }
        let row = |unit: &str, of: fn(&Run) -> f64| {
            let bare = median(&mut results[JEMALLOC].iter().map(of).collect::<Vec<_>>());
            let ratios = results.iter().map(|runs| {
                let pairs = runs.iter().zip(&results[JEMALLOC]);
                median(
                    &mut pairs
                        .map(|(run, base)| of(run) / of(base))
                        .collect::<Vec<_>>(),
                )
            });
            let ratios: Vec<String> = ratios.map(|ratio| format!("{ratio:.2}")).collect();
            let (name, threads) = (work.name, work.threads);
            format!(
                "| {name} | {threads} | {bare:.2} {unit} | {} |",
                ratios.join(" | ")
            )
        };
        let time = if work.prints_time { "ns" } else { "s" };
        println!("{}", row(time, |run| run.time));
        memory.push(row("MiB", |run| run.memory));
    }
    println!("\nmaximum of the resident memory\n");
    header();
    for row in memory {
        println!("{row}");
    }
    print_instructions(&programs);
}

/// Prints the instructions of a pair, the loop of the benchmark included.
fn print_instructions(programs: &Path) {
    if !callgrind::is_installed() {
        println!("\nno valgrind: instructions are not counted");
        return;
    }
    println!("\ninstructions of a pair and of the loop around it, by callgrind\n");
    println!("| pairs | {} |", ALLOCATORS.join(" | "));
    println!("|---|{}", "---|".repeat(ALLOCATORS.len()));
    for name in ["tight", "random"] {
        let counts = ALLOCATORS.map(|allocator| {
            let [few, many] = [100_000_u64, 300_000].map(|pairs| {
                let mut command = callgrind::command(&programs.join(allocator));
                callgrind::instructions(command.args([name, &pairs.to_string()]))
            });
            format!("{:.1}", (many - few) as f64 / 200_000.0)
        });
        println!("| {name} | {} |", counts.join(" | "));
    }
}

/// Builds the programs and returns their folder.
fn build() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("inside");
    let status = Command::new("cargo")
        .args(["build", "--profile", "lto", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .args(ALLOCATORS.map(|name| format!("--bin={name}")))
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "{} does not build", package.display());
    package.join("target").join("lto")
}

/// A run: what the program printed, its CPU time in seconds or of a pair in nanoseconds, and the maximum
/// of its resident memory in mebibytes.
struct Run {
    printed: String,
    time: f64,
    memory: f64,
}

#[allow(
    clippy::zombie_processes,
    reason = "`wait4` waits, and returns the usage"
)]
fn run(program: &Path, work: &Work, scale: usize) -> Run {
    let mut child = Command::new(program)
        .args([work.name, &scale.to_string(), &work.threads.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut printed = String::new();
    let output = child.stdout.as_mut().expect("the output is a pipe");
    output
        .read_to_string(&mut printed)
        .expect("the output is text");
    // SAFETY: all zeros is a valid `rusage`, which the call fills; the child is waited for once.
    let (status, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut status = 0;
        let waited = libc::wait4(
            child.id() as libc::pid_t,
            &raw mut status,
            0,
            &raw mut usage,
        );
        assert_eq!(waited, child.id() as libc::pid_t);
        (status, usage)
    };
    assert_eq!(status, 0, "{} {} fails", program.display(), work.name);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let time = if work.prints_time {
        printed.trim().parse().expect("the program prints a time")
    } else {
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    Run {
        printed,
        time,
        memory: usage.ru_maxrss as f64 / 1024.0,
    }
}
