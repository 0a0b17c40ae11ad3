//! The short and the long form of the matrix, and messages about skipped cases.

use std::io::Write;

/// Returns whether this is the long form.
pub fn all() -> bool {
    std::env::var_os("PLIMSOLL_LINK_MATRIX").is_some_and(|form| form == "all")
}

/// Writes past the harness's capture, so that a skipped test is not mistaken for a passed one.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "link_matrix: {what}");
}

/// Returns whether this form includes the case; prints a message if not.
pub fn is_in_this_form(case: &str) -> bool {
    if !all() {
        say(&format!("{case}: left to PLIMSOLL_LINK_MATRIX=all"));
    }
    all()
}

/// Returns the profiles with which programs are built.
pub fn profiles() -> &'static [&'static str] {
    if all() {
        &["dev", "release", "stripped"]
    } else {
        &["dev"]
    }
}
