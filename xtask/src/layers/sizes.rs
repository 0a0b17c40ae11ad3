//! The maximum sizes of crates: what one person reads at a stretch.

use std::fs;
use std::path::Path;

/// The maximum number of lines of a crate's `src`, tests in it included.
const LINES: usize = 6_000;

/// Crates with another maximum.
const OTHERS: [(&str, usize); 14] = [
    ("plimsoll", 3_000),
    ("plimsoll-cli", 7_000),
    ("plimsoll-command", 9_000),
    ("plimsoll-core", 14_000),
    ("plimsoll-launch", 10_000),
    ("plimsoll-preload", 8_000),
    ("plimsoll-profiles", 15_000),
    ("plimsoll-python", 2_500),
    ("plimsoll-serve", 12_000),
    ("plimsoll-stats", 7_000),
    ("plimsoll-sys", 7_000),
    ("plimsoll-top", 4_000),
    ("plimsoll-unwind", 4_000),
    ("plimsoll-waits", 9_000),
];

/// Returns a line for each crate that is larger than its maximum.
pub(super) fn violations(root: &Path, crates: &[String]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for name in crates {
        let mut others = OTHERS.iter();
        let maximum = others.find(|(other, _)| other == name);
        let maximum = maximum.map_or(LINES, |&(_, lines)| lines);
        let lines = lines_below(&root.join("crates").join(name).join("src"))?;
        if lines > maximum {
            found.push(format!("{name}: {lines} lines, {maximum} at most"));
        }
    }
    Ok(found)
}

fn lines_below(folder: &Path) -> Result<usize, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut lines = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            lines += lines_below(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            lines += fs::read_to_string(&path).map_err(failed)?.lines().count();
        }
    }
    Ok(lines)
}
