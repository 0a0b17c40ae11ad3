//! Counts the tests that this run skipped. Cargo runs this package's tests after those of all others.

use std::collections::BTreeMap;
use std::io::Write as _;

/// The environment variable with the path of the list of skips that are expected.
const EXPECTED: &str = "PLIMSOLL_EXPECTED_SKIPS";

/// Returns the reason in a line of the form `BINARY: TEST: REASON`.
fn reason(line: &str) -> &str {
    line.splitn(3, ": ").nth(2).unwrap_or(line)
}

/// Prints the number of skipped tests and their reasons, past the capture of the test harness.
#[test]
fn skipped_tests_are_counted() {
    let Some(file) = plimsoll_testkit::skips::file() else {
        return;
    };
    let skips = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    let mut by_reason: BTreeMap<&str, usize> = BTreeMap::new();
    for line in skips.lines() {
        *by_reason.entry(reason(line)).or_default() += 1;
    }
    let mut text = format!("\nskipped in this run: {} tests\n", skips.lines().count());
    for (reason, count) in &by_reason {
        text.push_str(&format!("  {count:>3} {reason}\n"));
    }
    std::io::stderr().write_all(text.as_bytes()).unwrap();
    let Some(expected) = std::env::var_os(EXPECTED) else {
        return;
    };
    let expected = std::fs::read_to_string(expected).unwrap();
    let expected = expected
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let expected: Vec<&str> = expected.collect();
    // The name of a test is not part of its reason.
    let is_unexpected = |line: &&str| {
        let reason = reason(line);
        !expected.iter().any(|expected| reason.contains(expected))
    };
    let unexpected: Vec<&str> = skips.lines().filter(is_unexpected).collect();
    assert!(
        unexpected.is_empty(),
        "skipped, and not in {EXPECTED}:\n{}",
        unexpected.join("\n")
    );
}

/// A test that says in other words that it does not run is not counted.
#[test]
fn skips_are_stated_by_the_macro() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut waiting = vec![
        std::path::PathBuf::from(root).join("crates"),
        std::path::PathBuf::from(root).join("examples/tests"),
    ];
    let words = [
        "skipped",
        "not tried",
        "was not found",
        "is not set",
        "not installed",
    ];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        // Meanwhile other tests may remove what they have made.
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
            continue;
        }
        let below = path.strip_prefix(root).unwrap_or(&path);
        let is_test = below.components().any(|part| part.as_os_str() == "tests");
        if !is_test || path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.to_lowercase();
            if line.contains("println!(") && words.iter().any(|words| line.contains(words)) {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "use skip!:\n{}", found.join("\n"));
}
