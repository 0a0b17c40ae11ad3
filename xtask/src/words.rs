//! `cargo xtask words`: the words that comments, documents and messages do not use.
//!
//! Code is not a person, and a pronoun hides what a sentence is about. CONTRIBUTING.md has the rules.

use std::path::Path;

use crate::cross::plain;

/// The words, in two halves, so that this list is no occurrence of them.
const WORDS: [(&str, &str); 9] = [
    ("who", "ever"),
    ("no", "body"),
    ("some", "body"),
    ("every", "body"),
    ("him", "self"),
    ("to", "ld"),
    ("te", "lls"),
    ("the d", "oor"),
    ("the r", "oom"),
];

/// Files whose text is not the project's.
const EXCLUDED: [&str; 2] = [":!*LICENSE-*", ":!*.lock"];

/// Prints each line of a tracked text file that has one of the words, and fails if there is one.
///
/// # Errors
/// The number of these lines, or git cannot be run.
pub fn check(root: &Path) -> Result<(), String> {
    let words = WORDS.map(|(first, second)| format!("{first}{second}"));
    let mut git = plain("git", root);
    git.args([
        "grep",
        "-I",
        "-n",
        "-i",
        "-w",
        "-E",
        &words.join("|"),
        "--",
        ".",
    ]);
    let output = git.args(EXCLUDED).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    // Without a match, git ends with status 1.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(format!("git grep: {}", output.status));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    print!("{lines}");
    match lines.lines().count() {
        0 => Ok(()),
        number => Err(format!("{number} lines with words that the style excludes")),
    }
}
