//! The published tests of parking_lot and crossbeam pass with all their futex calls passing a hook,
//! as they do without one.
//!
//! The test takes some minutes, and needs the packages' sources from the registry: `cargo test -p
//! plimsoll-interpose --test published_suites -- --ignored --nocapture`.

#![cfg(interposes_functions)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const AT_START: &str = include_str!("published_suites/at_start.rs");
const WITNESS: &str = include_str!("link_matrix/source/witness.rs");

/// Packages and their required versions.
const PACKAGES: [(&str, &str); 4] = [
    ("parking_lot_core", "0.9"),
    ("parking_lot", "0.12"),
    ("crossbeam-utils", "0.8"),
    ("crossbeam-channel", "0.5"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("published_suites")
}

/// Returns a cargo command without the variables that this test run sets for itself.
fn cargo(directory: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory);
    for variable in [
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "RUSTFLAGS",
        "RUST_TEST_THREADS",
    ] {
        cargo.env_remove(variable);
    }
    cargo
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().expect("not the root")).expect("may be written");
    fs::write(path, content).expect("may be written");
}

/// Downloads the sources of all packages, each into a directory of its name.
fn sources() -> PathBuf {
    let wanted = root().join("wanted");
    let mut manifest = "[package]\nname = \"wanted\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
                        [workspace]\n\n[dependencies]\n"
        .to_owned();
    for (name, version) in PACKAGES {
        manifest += &format!("{name} = \"{version}\"\n");
    }
    write(&wanted.join("Cargo.toml"), &manifest);
    write(&wanted.join("src/lib.rs"), "");
    let output = cargo(&wanted)
        .args(["vendor", "sources"])
        .output()
        .expect("cargo is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    wanted.join("sources")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("may be written");
    for entry in fs::read_dir(from).expect("is there") {
        let entry = entry.expect("may be read");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("has one").is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("may be written");
        }
    }
}

/// Writes the crate that is linked into a suite.
fn at_start() -> PathBuf {
    let package = root().join("at-start");
    let manifest = format!(
        "[package]\nname = \"at-start\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n[dependencies]\nplimsoll-interpose = {{ path = {:?} }}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    write(&package.join("Cargo.toml"), &manifest);
    write(&package.join("src/lib.rs"), AT_START);
    write(&package.join("src/witness.rs"), WITNESS);
    package
}

/// The outcome of a suite.
#[derive(Default)]
struct Outcome {
    /// The outcome of each test, by file and name.
    tests: BTreeMap<(String, String), String>,
    /// The number of programs, and the totals of their hooks.
    programs: usize,
    waits: usize,
    wakes: usize,
}

impl Outcome {
    /// Parses the output of cargo and the tests, in its original order.
    fn parse(text: &str) -> Self {
        let mut outcome = Self::default();
        let mut file = "";
        for line in text.lines() {
            let line = line.trim();
            if let Some(running) = line.strip_prefix("Running ") {
                file = running.rsplit_once(" (").map_or(running, |(file, _)| file);
            } else if let Some((name, became)) = test(line) {
                let test = (file.to_owned(), name.to_owned());
                outcome.tests.insert(test, became.to_owned());
            } else if let Some(report) = line.strip_prefix("interposed: ") {
                assert!(report.contains("linked=true"), "{report}");
                let number = |key| {
                    let value = report
                        .split_whitespace()
                        .find_map(|word| word.strip_prefix(key));
                    value.expect("is there").parse::<usize>().expect("a number")
                };
                outcome.programs += 1;
                outcome.waits += number("waits=");
                outcome.wakes += number("wakes=");
            }
        }
        outcome
    }

    fn passed(&self) -> usize {
        self.tests
            .values()
            .filter(|became| *became == PASSED)
            .count()
    }
}

/// Returns the name of a test and its outcome.
fn test(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.rsplit_once(" ... ")
}

/// Runs a package's tests in a copy, with the crate or without it.
///
/// A failed test is run again alone, up to three times, in both forms. Some tests measure times
/// that other tests influence, or how far one thread gets ahead of another.
fn run(sources: &Path, name: &str, interposed: bool) -> Outcome {
    let form = if interposed { "with" } else { "without" };
    let package = root().join(form).join(name);
    let _ = fs::remove_dir_all(&package);
    copy(&sources.join(name), &package);

    let manifest = package.join("Cargo.toml");
    let mut text = fs::read_to_string(&manifest).expect("it exists");
    text += "\n[workspace]\n";
    if interposed {
        text += &format!("\n[dependencies.at-start]\npath = {:?}\n", at_start());
        let library = package.join("src/lib.rs");
        let mut source = fs::read_to_string(&library).expect("it exists");
        source += "\nextern crate at_start as _;\n";
        write(&library, &source);
    }
    write(&manifest, &text);

    let log = root().join(format!("{form}-{name}.log"));
    let tests = |arguments: &[&str]| {
        let both = File::create(&log).expect("may be written");
        // The exit status is ignored: a test that fails without the crate may fail with it.
        cargo(&package)
            .args(["test", "--no-fail-fast", "--target-dir"])
            .arg(root().join("target").join(form))
            .args(arguments)
            .stdout(both.try_clone().expect("the descriptor can be duplicated"))
            .stderr(both)
            .status()
            .expect("cargo is installed");
        Outcome::parse(&fs::read_to_string(&log).expect("text"))
    };

    let mut outcome = tests(&["--lib", "--tests"]);
    let failed = outcome
        .tests
        .iter_mut()
        .filter(|(_, became)| *became == FAILED);
    for ((file, test), became) in failed {
        let target = match file.strip_prefix("tests/") {
            Some(file) => format!("--test={}", file.trim_end_matches(".rs")),
            None => "--lib".to_owned(),
        };
        for _ in 0..3 {
            println!("{name}, {form}: {file}: {test} has failed, and is run by itself");
            let again = tests(&[
                &target,
                "--",
                "--exact",
                test.trim_end_matches(SHOULD_PANIC),
            ]);
            let again = again.tests.into_values().next();
            if again.is_some_and(|again| again == PASSED) {
                *became = PASSED.to_owned();
                break;
            }
        }
    }
    outcome
}

const PASSED: &str = "ok";
const FAILED: &str = "FAILED";
/// The suffix of the name of a test that should panic.
const SHOULD_PANIC: &str = " - should panic";

#[test]
#[ignore = "takes some minutes, and downloads packages"]
fn published_suites_pass_as_without() {
    let sources = sources();
    let mut different = Vec::new();
    for (name, _) in PACKAGES {
        let without = run(&sources, name, false);
        let with = run(&sources, name, true);
        println!(
            "{name}: {} of {} pass without, {} of {} with; {} programs, {} waits, {} wakes",
            without.passed(),
            without.tests.len(),
            with.passed(),
            with.tests.len(),
            with.programs,
            with.waits,
            with.wakes,
        );
        assert!(without.passed() > 0, "{name}");
        assert_eq!(without.programs, 0, "{name}");
        assert!(with.programs > 0, "{name}");
        assert!(with.waits > 0 && with.wakes > 0, "{name}");
        for test in without.tests.keys().chain(with.tests.keys()) {
            let (without, with) = (without.tests.get(test), with.tests.get(test));
            if without != with {
                different.push(format!(
                    "{name}, {test:?}: {without:?} without, {with:?} with"
                ));
            }
        }
    }
    different.dedup();
    assert!(different.is_empty(), "{different:#?}");
}
