//! Warnings on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use plimsoll_process::file_size;
use plimsoll_sys::os::filter;

use crate::internal_scope;

/// Writes a line to standard error, with control characters escaped. A failure to write is ignored.
pub fn warn(what: impl Display) {
    if !filter::may_write() {
        return;
    }
    let _own = internal_scope::scope();
    let line = format!("plimsoll: {}\n", printable(&what.to_string()));
    // In one write, so that output of other programs cannot split it.
    let _ = file_size::without_signal(|| io::stderr().write_all(line.as_bytes()));
}

/// Escapes characters that would end the line or control a terminal, as Rust writes them.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}
