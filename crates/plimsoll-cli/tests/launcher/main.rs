//! The launcher on each machine: programs of C, Rust and Python that allocate known numbers of
//! blocks of known sizes have exact counts, and estimates by function within five standard errors.
//! So results on two machines differ by sampling only.
//!
//! The programs are built here, unless `PLIMSOLL_LAUNCHER_PROGRAMS` names a folder with them:
//! `cargo xtask test-aarch64` builds that folder for the emulated machine.
//!
//! Error probability: each estimate is a sum of at least 590 samples, which is off by five standard
//! errors less than once in 10^6 runs. The tests compare 22 estimates, so they fail by chance less
//! than once in 45,000 runs.

#[path = "../command/mod.rs"]
mod command;
mod programs;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use command::Directory;
use programs::{plimsoll, program};

/// Mean bytes between two samples.
const RATE: f64 = 16384.0;

/// Blocks of one size, as a program allocates them. It frees the half. The start of a program
/// allocates no blocks of similar sizes: a request can receive up to 16 bytes more, from a larger
/// remainder.
#[derive(Clone, Copy)]
struct Blocks {
    /// A function on the stacks of these allocations.
    function: &'static str,
    /// The requested size.
    size: u64,
    /// The size class of the memory that glibc returns on 64-bit machines: it adds 8 bytes and
    /// rounds up to 16; the class is one of Go's above 1 KiB.
    class: u64,
    count: u64,
}

const fn blocks(function: &'static str, size: u64, class: u64, count: u64) -> Blocks {
    Blocks {
        function,
        size,
        class,
        count,
    }
}

#[test]
fn a_c_program_has_the_counts_and_estimates_of_its_source() {
    let all = [
        blocks("small", 200, 200, 100_000),
        blocks("medium", 1000, 1000, 20_000),
        blocks("large", 20_000, 20_480, 2000),
    ];
    check("known_c", &[], &all, 0);
}

#[test]
fn a_rust_program_has_the_counts_and_estimates_of_its_source() {
    let all = [
        blocks("small", 200, 200, 100_000),
        blocks("medium", 1000, 1000, 20_000),
        blocks("large", 20_000, 20_480, 2000),
    ];
    check("known_rust", &[], &all, 0);
}

/// The functions of the script are the callers, in place of Python's evaluation loop.
///
/// The interpreter's start always requests the same blocks, but glibc may return up to 16 bytes more
/// for one of them, which differs from run to run. So the total is exact, and a class may have a few
/// blocks more or fewer.
#[test]
fn a_python_program_has_the_counts_and_estimates_of_its_source() {
    let Some(python) = programs::python() else {
        return;
    };
    let script = program("known.py");
    let all = [
        blocks("allocate (known.py)", 824, 824, 30_000),
        blocks("allocate (known.py)", 20_000, 20_480, 2000),
    ];
    // Both runs compile the modules that have no compiled file.
    let arguments = ["-I", "-S", "-B", script.to_str().unwrap()];
    check(python.to_str().unwrap(), &arguments, &all, 4);
}

/// Without a report of the process, the command reads the counts from its post-mortem file.
#[test]
fn a_killed_program_has_the_counts_of_its_source() {
    let all = [
        blocks("small", 200, 200, 100_000),
        blocks("medium", 1000, 1000, 20_000),
        blocks("large", 20_000, 20_480, 2000),
    ];
    let directory = Directory::new("launcher-killed");
    let mut arguments: Vec<String> = all.iter().map(|of| of.count.to_string()).collect();
    arguments.push("kill".into());
    let run = run(&directory.0, "known_c", &[], &arguments, &["--postmortem"]);
    let report = report_of(&run);
    assert!(!run.status.success(), "{report}");
    assert_eq!(report["ending"], "killed", "{report}");
    for of in &all {
        assert_eq!(counts_of(&report, of.class), (of.count, of.count / 2));
    }
    check_estimates("known_c, killed", &directory.0, &all);
}

#[test]
fn doctor_examines_each_program_and_prints_its_platform() {
    let doctor = |arguments: &[&std::ffi::OsStr]| {
        let output = plimsoll().arg("doctor").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for (name, language) in [("known_c", "neither Rust nor Go"), ("known_rust", "Rust")] {
        let findings = doctor(&[program(name).as_os_str()]);
        for expected in ["observes its heap, locks and threads", language] {
            assert!(findings.contains(expected), "{name}: {findings}");
        }
        assert!(
            !findings.contains("the other findings hold where"),
            "{findings}"
        );
    }
    let machine = std::env::consts::ARCH.replace('_', "-");
    let platform = format!("\nplatform Linux, glibc, {machine}\n");
    let findings = doctor(&[]);
    assert!(findings.contains(&platform), "{findings}");
    println!("{findings}");
}

/// The arguments of each function are in registers and on the stack. The executed program is
/// preloaded, whatever environment it is given, and reports in place of the first.
#[test]
fn each_exec_function_passes_its_arguments_and_the_executed_program_reports() {
    let directory = Directory::new("launcher-exec");
    for by in [
        "execl", "execlp", "execle", "execv", "execvp", "execve", "execvpe", "fexecve", "execveat",
    ] {
        let arguments = ["10", "10", "10", by].map(String::from);
        let run = run(&directory.0, "known_c", &[], &arguments, &[]);
        let errors = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(0), "{by}: {errors}");
        let report = report_of(&run);
        assert_eq!(report["ending"], "exit", "{by}");
        let counted = [200, 1000, 20_480].map(|class| counts_of(&report, class));
        assert_eq!(counted, [(20, 10), (30, 15), (40, 20)], "{by}: {errors}");
    }
}

#[test]
fn a_failed_execution_returns_to_a_program_that_goes_on_counting() {
    let directory = Directory::new("launcher-failed-exec");
    let arguments = ["10", "10", "10", "no function"].map(String::from);
    let run = run(&directory.0, "known_c", &[], &arguments, &[]);
    assert_eq!(run.status.code(), Some(5));
    let report = report_of(&run);
    assert_eq!(report["ending"], "exit", "{report}");
    for class in [200, 1000, 20_480] {
        assert_eq!(counts_of(&report, class), (10, 5), "{report}");
    }
}

/// Runs a program, and compares its exact counts and its estimates with `all`. The start of the
/// program may move up to `moved` blocks between size classes.
fn check(name: &str, before: &[&str], all: &[Blocks], moved: u64) {
    let directory = Directory::new(&format!("launcher-{}", command::name(name)));
    // Arguments of one length: a program may copy them.
    let word = |count: u64| format!("{count:06}");
    let none = vec![word(0); all.len()];
    let without = run(&directory.0, name, before, &none, &[]);
    let counts: Vec<String> = all.iter().map(|of| word(of.count)).collect();
    let with = run(&directory.0, name, before, &counts, &[]);
    for run in [&without, &with] {
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{name}: {errors}");
    }
    let (without, with) = (report_of(&without), report_of(&with));
    for of in all {
        let (before, after) = (counts_of(&without, of.class), counts_of(&with, of.class));
        let counted = (after.0 - before.0, after.1 - before.1);
        let expected = (of.count, of.count / 2);
        println!(
            "{name}: {} B: {} allocated, {} freed, exactly",
            of.size, counted.0, counted.1
        );
        let allocations_moved = counted.0.abs_diff(expected.0);
        let frees_moved = counted.1.abs_diff(expected.1);
        assert!(
            allocations_moved <= moved && frees_moved <= moved,
            "{name}: {}: {counted:?} of {expected:?}",
            of.size
        );
    }
    let (before, after) = (totals_of(&without), totals_of(&with));
    let counted = (after.0 - before.0, after.1 - before.1);
    let expected = (
        all.iter().map(|of| of.count).sum(),
        all.iter().map(|of| of.count / 2).sum(),
    );
    assert_eq!(counted, expected, "{name}: all classes");
    let requested = number(&with, "asked_bytes") - number(&without, "asked_bytes");
    let expected: u64 = all.iter().map(|of| of.size * of.count).sum();
    assert_eq!(requested, expected);
    assert_eq!(number(&with, "untracked"), 0);
    assert_eq!(number(&with, "without_stack"), 0);
    check_estimates(name, &directory.0, all);
}

/// Runs a program by `plimsoll run`, with its profiles in `directory`.
fn run(
    directory: &Path,
    name: &str,
    before: &[&str],
    arguments: &[String],
    options: &[&str],
) -> Output {
    let rate = format!("{RATE}");
    let mut command = plimsoll();
    command
        .args(["run", "--json", "--heap-rate", &rate, "--out"])
        .arg(directory)
        .args(options)
        .arg("--")
        .arg(program(name))
        .args(before)
        .args(arguments)
        .env("PYTHONHASHSEED", "0");
    command.output().unwrap()
}

/// Returns the report in the last line of standard error.
fn report_of(run: &Output) -> Value {
    let errors = String::from_utf8_lossy(&run.stderr);
    let last = errors.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Returns the numbers of allocations and of frees in a size class.
fn counts_of(report: &Value, class: u64) -> (u64, u64) {
    let classes = report["classes"].as_array().unwrap();
    let of = |at: &Value, index: usize| at[index].as_u64().unwrap();
    let found = classes.iter().find(|at| of(at, 0) == class);
    found.map_or((0, 0), |at| (of(at, 1), of(at, 2)))
}

/// Returns the numbers of allocations and of frees in all size classes.
fn totals_of(report: &Value) -> (u64, u64) {
    let classes = report["classes"].as_array().unwrap();
    let sum = |index: usize| classes.iter().map(|at| at[index].as_u64().unwrap()).sum();
    (sum(1), sum(2))
}

/// Compares the estimates of the heap profile in `directory` with `all`.
fn check_estimates(name: &str, directory: &Path, all: &[Blocks]) {
    for of in all {
        let probability = 1.0 - (-(of.size as f64) / RATE).exp();
        for (kind, count) in [("alloc", of.count), ("inuse", of.count / 2)] {
            let objects = estimate(directory, &format!("{kind}_objects"), of);
            let space = estimate(directory, &format!("{kind}_space"), of);
            let expected = count as f64;
            assert!(expected * probability >= 590.0, "too few samples");
            let standard_error = (expected * (1.0 - probability) / probability).sqrt();
            let off = (objects - expected) / standard_error;
            println!(
                "{name}: {} < {kind}, {} B: {objects} objects, {space} B; {off:+.2} standard errors",
                of.function, of.size
            );
            assert!(off.abs() <= 5.0, "{objects} of {expected} objects");
            // Values are rounded for each stack.
            let of_class = space / objects;
            assert!(
                (of_class / of.class as f64 - 1.0).abs() < 0.002,
                "{space} B"
            );
        }
    }
}

/// Returns the sum of a sample type over all stacks with the function, for blocks of the class.
fn estimate(directory: &Path, sample_type: &str, of: &Blocks) -> f64 {
    let mut command = plimsoll();
    command
        .args(["report", "--folded", "-t", sample_type])
        .args(["--tag", &format!("bytes={}", of.class)])
        .arg(directory.join("heap.pb.gz"));
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        // Names of Rust's functions begin with their crate.
        let is_it = |frame: &str| frame.rsplit("::").next() == Some(of.function);
        *sums.entry(stack.split(';').any(is_it)).or_insert(0.0) += value;
    }
    let its = sums.remove(&true).unwrap_or_default();
    // Other blocks of this class, of the program's start.
    let others: f64 = sums.into_values().sum();
    assert!(others <= 0.02 * its, "{}: {text}", of.function);
    its
}
