//! Reads the errors that cargo prints in its short format.

use std::collections::{BTreeMap, BTreeSet};

/// The errors of one check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Errors of the compiler, build scripts and cargo, one a line.
    lines: Vec<String>,
    /// The crates that do not compile.
    crates: BTreeSet<String>,
}

impl Errors {
    /// Reads cargo's output of errors.
    pub fn parse(output: &str) -> Self {
        let mut errors = Self::default();
        for line in output.lines() {
            if let Some(name) = line
                .strip_prefix("error: could not compile `")
                .or_else(|| line.strip_prefix("error: failed to run custom build command for `"))
            {
                let end = name.find(['`', ' ']).unwrap_or(name.len());
                errors.crates.insert(name[..end].to_owned());
            } else if line.starts_with("error") || line.contains(": error") {
                errors.lines.push(line.trim_end().to_owned());
            }
        }
        errors
    }

    /// Prints the first errors of the check of a crate, without those that are in `printed`
    /// already. Adds these to it.
    pub fn print(&self, name: &str, number: usize, printed: &mut BTreeSet<String>) {
        let is_new = |line: &&String| !printed.contains(*line);
        let new: Vec<String> = self.lines.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            println!("{name}: {} errors", new.len());
        }
        for line in new.iter().take(number) {
            println!("{line}");
        }
        if new.len() > number {
            println!("... and {} more", new.len() - number);
        }
        printed.extend(new);
    }

    /// Returns a line for the check of a crate: the crates that do not compile, and the number of
    /// errors by kind, unless all of them are in other crates of the project.
    pub fn summary(&self, name: &str) -> String {
        let crates = self.crates.iter().map(String::as_str);
        let crates = crates.collect::<Vec<_>>().join(", ");
        let is_below = |other: &String| other.starts_with("plimsoll") && other != name;
        if !self.crates.is_empty() && self.crates.iter().all(is_below) {
            return format!("needs {crates}");
        }
        let mut kinds = BTreeMap::<&str, usize>::new();
        for line in &self.lines {
            *kinds.entry(kind(line)).or_default() += 1;
        }
        let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, number)| (std::cmp::Reverse(*number), *kind));
        let kinds = kinds
            .iter()
            .map(|(kind, number)| format!("{number} {kind}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        match self.crates.is_empty() {
            true => kinds,
            false => format!("{kinds} in {crates}"),
        }
    }
}

/// The code of a compiler's error, or `other`.
fn kind(line: &str) -> &str {
    let code = line
        .split_once("error[")
        .and_then(|(_, rest)| rest.split_once(']'));
    code.map_or("other", |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind_and_named_by_crate() {
        let errors = Errors::parse(
            "crates/plimsoll/src/x.rs:1:2: error[E0425]: cannot find value `x`\n\
             crates/plimsoll/src/x.rs:1:9: warning: unused\n\
             crates/plimsoll/src/y.rs:7:2: error[E0425]: cannot find value `y`\n\
             crates/plimsoll/src/y.rs:9:2: error: invalid register\n\
             error: could not compile `plimsoll` (lib) due to 3 previous errors; 1 warning emitted\n\
             error: failed to run custom build command for `b-sys v0.7.0`\n",
        );
        let summary = "2 E0425, 1 other in b-sys, plimsoll";
        assert_eq!(errors.summary("plimsoll"), summary);
        assert_eq!(errors.summary("plimsoll-gc-arena"), summary);
    }

    #[test]
    fn crates_that_need_a_failed_one_are_reported_as_such() {
        let errors = Errors::parse(
            "a.rs:1:2: error[E0425]: cannot find value `x`\n\
             error: could not compile `plimsoll-sys` (lib) due to 1 previous error\n",
        );
        assert_eq!(errors.summary("plimsoll"), "needs plimsoll-sys");
        assert_eq!(errors.summary("plimsoll-sys"), "1 E0425 in plimsoll-sys");
    }

    #[test]
    fn errors_of_cargo_itself_are_kept() {
        let errors = Errors::parse("error: package ID specification `x` did not match\n");
        assert_eq!(errors.summary("x"), "1 other");
    }
}
