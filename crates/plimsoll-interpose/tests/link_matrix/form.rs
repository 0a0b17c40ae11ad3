//! The short form and the long one, and what is said of what was not done.

use std::io::Write;

/// Whether this is the long form.
pub fn all() -> bool {
    std::env::var_os("PLIMSOLL_LINK_MATRIX").is_some_and(|form| form == "all")
}

/// Past the harness's capture, so that nobody takes what was not done for passed.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "link_matrix: {what}");
}

/// Whether this is done; says so if not.
pub fn is_in_this_form(case: &str) -> bool {
    if !all() {
        say(&format!("{case}: left to PLIMSOLL_LINK_MATRIX=all"));
    }
    all()
}

/// The profiles that programs are built with.
pub fn profiles() -> &'static [&'static str] {
    if all() {
        &["dev", "release", "stripped"]
    } else {
        &["dev"]
    }
}
