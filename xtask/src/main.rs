//! The project's own checks, as `cargo xtask NAME`.

mod aarch64;
mod benchmarks;
mod ci;
mod cross;
mod features;
mod item_names;
mod layers;
mod platforms;
#[cfg(test)]
mod skips;
mod stress;
mod targets;
mod words;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  benchmarks [NAME ...]
                    runs the programs of bench/ in full, or those with these names, and writes
                    their sections of docs/benchmarks.md: hours, on a machine without other work
  ci                the gate: formatting, lints, layers, documentation, all tests in short form
  nightly           models, sanitizers, fuzzing, sets of features, costs, packages,
                    other targets, soaks
  nightly --short   the short form of CI: without fuzzing, web servers, criterion, other
                    targets and soaks
  item-names        checks that the items exist that strings, comments and documents name
  layers            checks that imports point down, by the tables of ARCHITECTURE.md
  layers --edges    prints every import between modules as well
  stress ROUNDS [--seed FIRST]
                    runs all tests in rounds under load: as an ordinary user, in other folders,
                    without variables and directories; the seed selects these
  words             checks that texts use none of the words that the style excludes
  test-aarch64 [--package NAME ...] [--suite PACKAGE:TEST ...] [--cuts NUMBER] [--debian] [-- FILTER ...]
                    runs tests on an emulated aarch64 machine; with at least that many snapshots
                    in each run of the test `consistency`; with Debian's compiler
  test-aarch64 --check-machine
                    checks that the machine reports failures, hangs and panics of its kernel
  count-aarch64     counts the instructions that counting adds to an allocation on aarch64
  check-targets [--target NAME ...] [--short | --debian]
                    checks that the crates that programs depend on compile for other targets;
                    with default features only; with Debian's compiler
  check-platforms [--short]
                    runs a program that uses each part on this machine, with musl,
                    and for Windows under Wine; on the first two only
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of xtask is in the project's");
    let outcome = match arguments[..] {
        ["benchmarks", ref names @ ..] => benchmarks::benchmarks(root, names),
        ["ci"] => ci::gate(root),
        ["nightly"] => ci::nightly(root, ci::Extent::Full),
        ["nightly", "--short"] => ci::nightly(root, ci::Extent::Short),
        ["item-names"] => item_names::check(root),
        ["layers"] => layers::check(root, false),
        ["layers", "--edges"] => layers::check(root, true),
        ["words"] => words::check(root),
        ["test-aarch64", ref options @ ..] => {
            aarch64::Options::parse(options).and_then(|options| aarch64::test(root, &options))
        }
        ["count-aarch64"] => aarch64::count(root),
        ["check-targets", ref options @ ..] => {
            targets::Options::parse(options).and_then(|options| targets::check(root, &options))
        }
        ["stress", rounds] => number(rounds).and_then(|rounds| stress::stress(root, rounds, 1)),
        ["stress", rounds, "--seed", first] => number(rounds).and_then(|rounds| {
            let first = number(first)?;
            stress::stress(root, rounds, first)
        }),
        ["check-platforms"] => platforms::check(root, false),
        ["check-platforms", "--short"] => platforms::check(root, true),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}
