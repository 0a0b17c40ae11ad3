//! Measures the cost of `plimsoll run` for real programs, in comparison with heaptrack.
//!
//! `programs PLIMSOLL [ROUNDS] [PER CENT] [NAME]`: the path of the command; by default 7 rounds,
//! the full size of the work, and all programs. A name selects the programs that contain it. Each
//! program runs alone, by `plimsoll run` and by heaptrack in turn, and in the opposite order in
//! every other round. A ratio is the median of the rounds' ratios, followed by the ratio of the
//! quickest runs. Ratios are of wall time, which for `plimsoll run` includes the summary, and of
//! the CPU time of the program and its runner. heaptrack takes part in three rounds, and so does
//! memray with programs in Python. PostgreSQL runs as the user `postgres`, so only for root.
//!
//! Alone and by `plimsoll run`, a program must write the same bytes and succeed. Its input is
//! generated first, in a separate directory; programs that are not installed are skipped.

mod works;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use works::{PYTHON, Work, is_there, works};

use plimsoll_bench::quantiles::median;
use plimsoll_bench::{environment, machine};

/// The ways of running a program; 0 is alone.
const RUN: usize = 1;
const HEAPTRACK: usize = 2;
const MEMRAY: usize = 3;
const JSON: usize = 4;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if std::env::args().nth(1).as_deref() == Some("--line") {
        return line(&arguments.nth(1).expect("a line for the shell"));
    }
    let plimsoll = arguments.next().expect("the path of plimsoll");
    let plimsoll = std::fs::canonicalize(plimsoll).expect("plimsoll is there");
    let mut numbers = arguments.map(|word| word.parse().ok());
    let rounds = numbers.next().flatten().unwrap_or(7);
    let per_cent = numbers.next().flatten().unwrap_or(100);
    let name = std::env::args().nth(4).unwrap_or_default();
    println!("{}\n", machine::describe());
    let directory = std::env::temp_dir().join(format!("plimsoll-programs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    println!(
        "| program | alone in s | plimsoll run | heaptrack | memray --native | CPU time, plimsoll run | CPU time, heaptrack | CPU time, memray --native | memory added by plimsoll run |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut ratios: [BTreeMap<usize, Vec<f64>>; 2] = Default::default();
    for work in works(&directory, per_cent, &name) {
        let mut times = [const { Vec::new() }; JSON];
        let mut processor = [const { Vec::new() }; JSON];
        let mut resident = [Vec::new(), Vec::new()];
        let mut wrote = None;
        for round in 0..rounds {
            let mut ways = [0, RUN, HEAPTRACK, MEMRAY];
            if round % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                let is_measured = match way {
                    HEAPTRACK => round < 3 && is_there("heaptrack"),
                    // For programs in Python.
                    MEMRAY => round < 3 && work.program.starts_with(PYTHON) && is_there("memray"),
                    _ => true,
                };
                if !is_measured {
                    continue;
                }
                let ran = run(&work, way, &plimsoll, &directory);
                times[way].push(ran.time.as_secs_f64());
                processor[way].push(ran.processor);
                if way == 0 {
                    resident[0].extend(ran.resident);
                }
                // The others also write to standard output.
                if way <= RUN {
                    let first = *wrote.get_or_insert(ran.wrote);
                    assert_eq!(ran.wrote, first, "{}: what it writes differs", work.name);
                }
            }
        }
        // `--json` reports resident memory to the byte, unlike the summary; these runs are not
        // timed.
        for _ in 0..rounds.min(3) {
            resident[1].extend(run(&work, JSON, &plimsoll, &directory).resident);
        }
        let mut cells = Vec::new();
        for (measured, ratios) in [&times, &processor].into_iter().zip(&mut ratios) {
            for way in 1..measured.len() {
                let ratios = ratios.entry(way).or_default();
                cells.push(ratio(&measured[0], &measured[way], ratios));
            }
        }
        let alone = median(&mut times[0]);
        let memory = if resident.iter().any(Vec::is_empty) {
            "-".to_owned()
        } else {
            let [before, after] = &mut resident;
            format!(
                "{:.1} MiB",
                (median(after) - median(before)) / f64::from(1 << 20)
            )
        };
        println!(
            "| {} | {alone:.2} | {} | {memory} |",
            work.name,
            cells.join(" | ")
        );
    }
    let mean = |ratios: &BTreeMap<usize, Vec<f64>>, way: usize| {
        let ratios = ratios.get(&way).filter(|ratios| !ratios.is_empty())?;
        let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        Some(format!(
            "{:.3}, worst {worst:.3}",
            (logarithms / ratios.len() as f64).exp()
        ))
    };
    let of = |of| [RUN, HEAPTRACK, MEMRAY].map(|way| mean(of, way).unwrap_or_else(|| "-".into()));
    let means = ratios.each_ref().map(of).concat();
    println!("| geometric mean | | {} | |", means.join(" | "));
    println!("| aim | | 1.03, worst 1.10 | | | 1.05, worst 1.15 | | | 8 MiB |");
    let _ = std::fs::remove_dir_all(directory);
}

/// Returns the median of the rounds' ratios and the ratio of the quickest runs, as text. Adds the
/// median to `ratios`.
fn ratio(alone: &[f64], other: &[f64], ratios: &mut Vec<f64>) -> String {
    if other.is_empty() {
        return "-".to_owned();
    }
    let mut of_rounds: Vec<f64> = other.iter().zip(alone).map(|(a, b)| a / b).collect();
    let ratio = median(&mut of_rounds);
    ratios.push(ratio);
    let quickest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let of_quickest = quickest(other) / quickest(&alone[..other.len()]);
    format!("{ratio:.3} ({of_quickest:.3})")
}

/// A run of a program.
struct Ran {
    time: Duration,
    /// CPU time in seconds; for a server, from its start to its end.
    processor: f64,
    /// The peak of resident memory in bytes, if it is known.
    resident: Option<f64>,
    /// A hash of standard output and of the program's file.
    wrote: u64,
}

fn run(work: &Work, way: usize, plimsoll: &Path, directory: &Path) -> Ran {
    let plimsoll = plimsoll.display();
    let runner = match way {
        0 => String::new(),
        RUN => format!("{plimsoll} run {} --", work.options),
        HEAPTRACK => "heaptrack -o heaptrack.out".to_owned(),
        MEMRAY => "memray run --native -q -f -o memray.out".to_owned(),
        _ => format!("{plimsoll} run --json {} --", work.options),
    };
    let program = match way {
        // It is a module of Python itself.
        MEMRAY => work.program.strip_prefix(PYTHON).unwrap_or(&work.program),
        _ => &work.program,
    };
    let before = if work.before.is_empty() {
        "exec"
    } else {
        work.before
    };
    // Another user may have written the earlier results.
    let line = format!("rm -f heaptrack.out* memray.out; {before} {runner} {program}");
    let started = Instant::now();
    // Runs through a process with little memory, because a child inherits its parent's peak at the
    // fork.
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
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
    let mut hasher = DefaultHasher::new();
    for name in written {
        let file = std::fs::File::open(directory.join(name)).expect("it is there");
        let mut file = std::io::BufReader::with_capacity(1 << 20, file);
        loop {
            let part = file.fill_buf().expect("it can be read");
            let length = part.len();
            hasher.write(part);
            file.consume(length);
            if length == 0 {
                break;
            }
        }
    }
    Ran {
        time,
        processor: said(directory, "processor: ").expect("it is said"),
        resident: resident(directory, way),
        wrote: hasher.finish(),
    }
}

/// Runs a line in a shell meanwhile.
fn ask(directory: &Path, line: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.current_dir(directory).args(["-c", line]);
    let status = shell.stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{line}");
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
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is valid for writes, and all zeros are a valid `rusage`.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    assert!(status.success(), "{line}: {status}");
    eprintln!("resident: {}", usage.ru_maxrss * 1024);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let processor = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    eprintln!("processor: {processor}");
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
