//! Measures the cost of `plimsoll run` for real programs, in comparison with heaptrack.
//!
//! `programs PLIMSOLL [ROUNDS [PER CENT]]`: the path of the command; by default 7 rounds and the full
//! size of the work. Each program runs alone, by `plimsoll run` and by heaptrack in turn, and in the
//! opposite order in every other round. A ratio is the median of the rounds' ratios. Ratios are of
//! wall time, which for `plimsoll run` includes the summary, and of the CPU time of the program and
//! its runner. heaptrack takes part in three rounds. PostgreSQL runs as the user `postgres`, so only
//! for root.
//!
//! Alone and by `plimsoll run`, a program must write the same bytes and succeed. Its input is
//! generated first, in a separate directory; programs that are not installed are skipped.

mod works;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use works::{Work, ask, is_there, works};

use plimsoll_bench::arguments::number;
use plimsoll_bench::quantiles::median;
use plimsoll_bench::rounds::ratio;
use plimsoll_bench::{children, clock, environment, machine, table};

/// The ways of running a program; 0 is alone.
const RUN: usize = 1;
const HEAPTRACK: usize = 2;
const JSON: usize = 3;

fn main() {
    let first = std::env::args().nth(1).expect("the path of plimsoll");
    if first == "--line" {
        return line(&std::env::args().nth(2).expect("a line for the shell"));
    }
    let plimsoll = std::fs::canonicalize(first).expect("plimsoll is there");
    let (rounds, per_cent) = (number(2, 7), number(3, 100));
    machine::print();
    let directory = std::env::temp_dir().join(format!("plimsoll-programs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    table::head(
        "| program | alone in s | plimsoll run | heaptrack | CPU time, plimsoll run | CPU time, heaptrack | memory added by plimsoll run |",
    );
    // Of each column of ratios.
    let mut all = [const { Vec::new() }; 4];
    for work in works(&directory, per_cent) {
        let mut times = [const { Vec::new() }; JSON];
        let mut processor = [const { Vec::new() }; JSON];
        let mut resident = [Vec::new(), Vec::new()];
        let mut wrote = None;
        for round in 0..rounds {
            let mut ways = vec![0, RUN];
            if round < 3 && is_there("heaptrack") {
                ways.push(HEAPTRACK);
            }
            if round % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                let ran = run(&work, way, &plimsoll, &directory);
                times[way].push(ran.time.as_secs_f64());
                processor[way].push(ran.processor);
                if way == 0 {
                    resident[0].extend(ran.resident);
                }
                // heaptrack also writes to standard output.
                if way <= RUN {
                    let first = wrote.get_or_insert_with(|| ran.wrote.clone());
                    assert_eq!(*first, ran.wrote, "{}: what it writes differs", work.name);
                }
            }
        }
        // `--json` reports resident memory to the byte, unlike the summary; these runs are not
        // timed.
        for _ in 0..rounds.min(3) {
            resident[1].extend(run(&work, JSON, &plimsoll, &directory).resident);
        }
        print!("| {} | {:.2} |", work.name, median(&times[0]));
        let columns = [&times, &processor]
            .map(|of| [RUN, HEAPTRACK].map(|way| (of[0].as_slice(), of[way].as_slice())));
        for ((alone, other), all) in columns.iter().flatten().zip(&mut all) {
            if !other.is_empty() {
                all.push(ratio(other, alone));
            }
            print!(" {} |", cell(all.last().filter(|_| !other.is_empty())));
        }
        let [before, after] = resident.map(|bytes| median(&bytes) / f64::from(1 << 20));
        println!(" {:.1} MiB |", after - before);
    }
    print!("| geometric mean | |");
    for ratios in all {
        let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let mean = (logarithms / ratios.len() as f64).exp();
        print!(" {} |", cell((!ratios.is_empty()).then_some(&mean)));
    }
    println!(" |\n| aim | | 1.03, each 1.10 | | 1.05, each 1.15 | | 8 MiB |");
    let _ = std::fs::remove_dir_all(directory);
}

fn cell(ratio: Option<&f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
}

/// A run of a program.
struct Ran {
    time: Duration,
    /// CPU time in seconds; for a server, from its start to its end.
    processor: f64,
    /// The peak of resident memory in bytes, if it is known.
    resident: Option<f64>,
    /// Checksums of standard output and of the program's file.
    wrote: Vec<u8>,
}

fn run(work: &Work, way: usize, plimsoll: &Path, directory: &Path) -> Ran {
    let plimsoll = plimsoll.display();
    let runner = match way {
        0 => String::new(),
        RUN => format!("{plimsoll} run {} --", work.options),
        HEAPTRACK => "heaptrack -o heaptrack.out".to_owned(),
        _ => format!("{plimsoll} run --json {} --", work.options),
    };
    // Another user may have written the earlier results.
    let line = format!(
        "rm -f heaptrack.out*; {} {runner} {}",
        work.before, work.program
    );
    let started = Instant::now();
    // Runs through a process with little memory, because a child inherits its parent's peak at the
    // fork.
    let mut child = Command::new(children::this())
        .current_dir(directory)
        .args(["--line", &line])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(directory.join("output")).expect("there is room"))
        .stderr(std::fs::File::create(directory.join("errors")).expect("there is room"))
        .spawn()
        .expect("there is a shell");
    let time = match &work.server {
        None => {
            wait(&mut child, &line);
            started.elapsed()
        }
        Some(server) => {
            let is_ready = server.is_ready;
            ask(
                directory,
                &format!(
                    "for i in $(seq 300); do {is_ready} >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1"
                ),
            );
            let started = Instant::now();
            ask(directory, &server.client);
            let time = started.elapsed();
            ask(directory, &format!("({}) > answers", server.questions));
            ask(directory, server.stop);
            wait(&mut child, &line);
            time
        }
    };
    let written = match (&work.server, work.makes) {
        (Some(_), _) => vec!["answers"],
        (None, Some(made)) => vec!["output", made],
        (None, None) => vec!["output"],
    };
    let sums = Command::new("cksum")
        .current_dir(directory)
        .args(written)
        .output()
        .expect("cksum can be run");
    assert!(sums.status.success(), "{line}: a result is missing");
    Ran {
        time,
        processor: said(directory, "processor: ").expect("it is said"),
        resident: resident(directory, way),
        wrote: sums.stdout,
    }
}

fn wait(child: &mut Child, line: &str) {
    let status = child.wait().expect("it is a child");
    assert!(status.success(), "{line}: {status}");
}

/// Runs a line in a shell. Prints the peak of resident memory in bytes, and the CPU time in
/// seconds.
fn line(line: &str) {
    let status = environment::plain(&mut Command::new("/bin/sh"))
        .args(["-c", line])
        .status()
        .expect("there is a shell");
    assert!(status.success(), "{line}: {status}");
    let usage = clock::usage(libc::RUSAGE_CHILDREN);
    eprintln!("resident: {}", usage.ru_maxrss * 1024);
    eprintln!("processor: {}", clock::children() as f64 / 1e9);
}

/// Returns the peak of resident memory in bytes: of the program alone as the system reports it, of
/// `plimsoll run --json` as that reports it.
fn resident(directory: &Path, way: usize) -> Option<f64> {
    match way {
        0 => said(directory, "resident: "),
        JSON => std::fs::read_to_string(directory.join("errors"))
            .ok()?
            .lines()
            .filter_map(|line| {
                let after = line.split("\"peak_resident\":").nth(1)?;
                let end = after.find(|digit: char| !digit.is_ascii_digit())?;
                after[..end].parse().ok()
            })
            // The largest of all processes, as the system reports it.
            .reduce(f64::max),
        _ => None,
    }
}

/// Returns a figure that [`line()`] printed, by its name.
fn said(directory: &Path, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(directory.join("errors")).ok()?;
    let mut lines = text.lines().rev();
    lines.find_map(|line| line.strip_prefix(name)?.parse().ok())
}
