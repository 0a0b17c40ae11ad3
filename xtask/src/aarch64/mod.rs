//! `cargo xtask test-aarch64`: runs test binaries on an emulated aarch64 machine.
//!
//! The whole system is emulated: emulation of single programs lacks restartable sequences and some
//! system calls. [`build`] compiles the binaries that [`suites`] lists, [`image`] packs them with
//! busybox and an init script, [`machine`] boots Debian's kernel with that, and [`protocol`] reads
//! the results from the console. [`launcher`] builds the programs that a test of the command runs.
//! [`exchange`] carries post-mortem files between the machines.
//! [`system`] installs and downloads what is missing. [`instructions`] counts instructions, without
//! the machine.

mod archive;
mod build;
mod exchange;
mod image;
mod instructions;
mod launcher;
mod machine;
mod protocol;
mod suites;
mod system;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cross::{self, Origin};
use build::Build;
use exchange::Exchange;
use image::Binary;
pub use instructions::count;
use protocol::{Expected, Outcome, Summary, Transcript, Verdict};
use suites::{SUITES, Suite};
use system::System;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const MUSL_TARGET: &str = "aarch64-unknown-linux-musl";
/// The snapshots that the emulated machine takes in a second, at least, in each run of the test.
const CUTS_PER_SECOND: u32 = 100;
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// A program for tests of the machine, among the examples of this package.
const PROBE: &str = "machine_probe";

/// The user's choices.
#[derive(Debug)]
pub struct Options {
    packages: Vec<String>,
    suites: Vec<String>,
    arguments: Vec<String>,
    origin: Origin,
    checks_machine: bool,
    /// The snapshots that each run of the test `consistency` takes, at least.
    cuts: u32,
}

impl Options {
    /// Parses the arguments that follow `test-aarch64`.
    ///
    /// # Errors
    /// An unknown option or package.
    pub fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            packages: Vec::new(),
            suites: Vec::new(),
            arguments: Vec::new(),
            origin: Origin::Any,
            checks_machine: false,
            cuts: 0,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--package" | "-p" => {
                    let package = arguments.next().ok_or("--package lacks a name")?;
                    if SUITES.iter().all(|suite| suite.package != *package) {
                        return Err(format!("{package} has no tests for the emulated machine"));
                    }
                    options.packages.push((*package).to_owned());
                }
                "--suite" | "-s" => {
                    let name = arguments.next().ok_or("--suite lacks a name")?;
                    if SUITES.iter().all(|suite| suite.name() != *name) {
                        let names: Vec<String> = SUITES.iter().map(Suite::name).collect();
                        return Err(format!("no suite {name}; suites: {}", names.join(" ")));
                    }
                    options.suites.push((*name).to_owned());
                }
                "--cuts" => {
                    let number = arguments.next().and_then(|number| number.parse().ok());
                    options.cuts = number.ok_or("--cuts lacks a number")?;
                }
                "--debian" => options.origin = Origin::Debian,
                "--check-machine" => options.checks_machine = true,
                "--" => options
                    .arguments
                    .extend(arguments.by_ref().map(|&word| word.into())),
                _ => return Err(format!("unknown argument of test-aarch64: {argument}")),
            }
        }
        Ok(options)
    }

    fn selects(&self, suite: &Suite) -> bool {
        let is_package = self.packages.iter().any(|name| name == suite.package);
        let is_suite = self.suites.contains(&suite.name());
        is_package || is_suite || (self.packages.is_empty() && self.suites.is_empty())
    }
}

/// Builds, boots, runs, and prints a table of results.
///
/// # Errors
/// A tool is missing; a package does not compile; a test fails or takes too long; the machine does
/// not end cleanly; or no test ran.
pub fn test(root: &Path, options: &Options) -> Result<(), String> {
    let folder = root.join("target/ci/aarch64");
    let system = System::prepare(&folder)?;
    let toolchain = cross::prepare(root, &[TARGET], options.origin)?[0];
    let build = Build::new(root, toolchain, &folder);
    let probe = build.example(PROBE)?;
    if options.checks_machine {
        return check_machine(&system, &probe);
    }
    let began = Instant::now();
    // Tests that need restartable sequences would otherwise pass on their substitutes.
    let mut binaries = vec![probe_binary(&probe, "rseq", 60)];
    let mut faults = Vec::new();
    let mut selected: Vec<Suite> = (SUITES.iter().copied())
        .filter(|suite| options.selects(suite))
        .collect();
    if selected.iter().any(Suite::is_musl) && !has_musl(root, options.origin) {
        println!("suites with musl are skipped, without a standard library from rustup");
        selected.retain(|suite| !suite.is_musl());
    }
    let is_same = |one: &Suite, other: &Suite| {
        (one.package, one.features, one.triple) == (other.package, other.features, other.triple)
    };
    for group in selected.chunk_by(is_same) {
        match build.tests(group) {
            Ok(files) => {
                let built = group.iter().zip(files);
                binaries.extend(built.map(|(suite, file)| binary(suite, file, options)));
            }
            Err(error) => faults.push(error),
        }
    }
    let mut extra = Vec::new();
    if selected.iter().any(launcher::is_needed_by) {
        match launcher::files(root, &folder, &build, &system) {
            Ok(files) => extra = files,
            Err(error) => faults.push(error),
        }
    }
    // A filter of the user may leave no test that writes a file.
    let exchanges = options.arguments.is_empty() && selected.iter().any(exchange::is_done_by);
    let exchange = match exchanges {
        true => Some(Exchange::new(root, &folder)?),
        false => None,
    };
    if let Some(exchange) = &exchange {
        extra.extend(exchange.send()?);
    }
    println!("built in {} s", began.elapsed().as_secs());
    let cuts = ("PLIMSOLL_CUTS", options.cuts.to_string());
    let run = system.run(binaries, &extra, &[cuts])?;
    faults.extend(run.faults);
    if let Some(exchange) = &exchange
        && let Err(error) = exchange.receive(run.transcript.files())
    {
        faults.push(error);
    }
    if options.arguments.is_empty() {
        // Tests that are compiled only for another processor.
        let empty = run.transcript.outcomes().iter().filter(|outcome| {
            outcome.verdict == Verdict::Passed && outcome.summary == Summary::default()
        });
        faults.extend(empty.map(|outcome| format!("{}: has no tests", outcome.name)));
    }
    report(&run.transcript, faults)
}

/// Whether the compiler has the library for musl. Debian's builds none.
fn has_musl(root: &Path, origin: Origin) -> bool {
    origin == Origin::Any && cross::add_libraries(root, &[MUSL_TARGET]) == [true]
}

fn binary(suite: &Suite, file: PathBuf, options: &Options) -> Binary {
    let arguments = suite.arguments.iter().map(|&argument| argument.to_owned());
    Binary {
        expected: Expected {
            name: suite.name(),
            limit_seconds: suite.limit_seconds + options.cuts / CUTS_PER_SECOND,
        },
        file,
        arguments: arguments.chain(options.arguments.iter().cloned()).collect(),
    }
}

fn probe_binary(file: &Path, behaviour: &str, limit_seconds: u32) -> Binary {
    Binary {
        expected: Expected {
            name: format!("probe:{behaviour}"),
            limit_seconds,
        },
        file: file.to_owned(),
        arguments: vec![behaviour.to_owned()],
    }
}

/// Prints the table, and fails if a binary or the machine did.
fn report(transcript: &Transcript, mut faults: Vec<String>) -> Result<(), String> {
    println!(
        "\n{:<38} {:>6} {:>6} {:>7} {:>5}",
        "", "passed", "failed", "ignored", "s"
    );
    let mut tests = 0;
    for outcome in transcript.outcomes() {
        let Outcome {
            name,
            verdict,
            seconds,
            summary,
        } = outcome;
        println!(
            "{name:<38} {:>6} {:>6} {:>7} {seconds:>5}  {verdict}",
            summary.passed, summary.failed, summary.ignored
        );
        tests += summary.passed + summary.failed;
        if *verdict != Verdict::Passed {
            faults.push(format!("{name}: {verdict}"));
        } else if summary.failed != 0 {
            // A child process of a test may fail as expected: this is none of the faults.
            println!("{name} passed, although its output has failed tests");
        }
    }
    faults.splice(0..0, transcript.faults());
    // The probe is the first.
    if faults.is_empty() && tests <= 1 {
        faults.push("no test ran".into());
    }
    for fault in &faults {
        println!("FAILED: {fault}");
    }
    match faults.len() {
        0 => Ok(()),
        number => Err(format!("{number} failures on {TARGET}")),
    }
}

/// Runs a program that passes, one that fails, one that hangs and one that makes the kernel panic,
/// and compares the results with these.
fn check_machine(system: &System, probe: &Path) -> Result<(), String> {
    let cases = [
        ("rseq", 60, Verdict::Passed),
        ("fail", 60, Verdict::Failed(3)),
        ("abort", 60, Verdict::Failed(128 + 6)),
        ("hang", 5, Verdict::TimedOut),
        ("panic", 60, Verdict::Unfinished),
        ("rseq", 60, Verdict::NotStarted),
    ];
    let binaries = cases
        .iter()
        .map(|(behaviour, limit, _)| probe_binary(probe, behaviour, *limit));
    let run = system.run(binaries.collect(), &[], &[])?;
    let outcomes = run.transcript.outcomes();
    let mut faults = Vec::new();
    for ((_, _, expected), outcome) in cases.iter().zip(outcomes) {
        if outcome.verdict != *expected {
            let Outcome { name, verdict, .. } = outcome;
            faults.push(format!(
                "{name} should be reported as `{expected}`: {verdict}"
            ));
        }
    }
    let panics = run.transcript.faults();
    if !panics.iter().any(|fault| fault.starts_with("Kernel panic")) {
        faults.push("the kernel's panic was not reported".into());
    }
    match report(&run.transcript, run.faults) {
        Ok(()) => faults.push("the run should be reported as a failure".into()),
        Err(error) => println!("as expected: {error}"),
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("; ")),
    }
}
