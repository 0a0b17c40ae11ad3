//! The text format of `debug=1`: addresses for tools, and names below them for people.

use std::fmt::{self, Write};

use super::shown::shown;
use crate::profile::reading::TextReading;
use crate::symbol::Symbols;

/// The reading as text.
pub(crate) fn write(reading: &TextReading, symbols: &Symbols) -> String {
    // It can be long: its length is found out first, so that nothing is moved while it grows.
    let mut length = Length(0);
    put(&mut length, reading, symbols);
    let mut text = String::with_capacity(length.0);
    put(&mut text, reading, symbols);
    text
}

/// Only counts bytes.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

fn put(out: &mut impl Write, reading: &TextReading, symbols: &Symbols) {
    let written = try_put(out, reading, symbols);
    written.expect("neither counting nor a string fails");
}

fn try_put(out: &mut impl Write, reading: &TextReading, symbols: &Symbols) -> fmt::Result {
    out.write_str(&reading.head)?;
    for (row, stack) in &reading.rows {
        write!(out, "{row} @")?;
        for frame in *stack {
            write!(out, " {frame:#x}")?;
        }
        out.write_char('\n')?;
        frames(out, stack, symbols)?;
        out.write_char('\n')?;
    }
    out.write_str(&reading.tail)
}

/// A line for each frame that is shown: its address, function, offset in it, file and line.
fn frames(out: &mut impl Write, stack: &[usize], symbols: &Symbols) -> fmt::Result {
    let (shown, mut hidden_lines) = shown(stack, symbols);
    for &frame in shown {
        let location = symbols.location(frame);
        let lines = location.map_or(&[][..], |location| &symbols.lines(location)[hidden_lines..]);
        hidden_lines = 0;
        if lines.is_empty() {
            writeln!(out, "#\t{frame:#x}")?;
        }
        let offset = location.and_then(|location| location.symbol_offset);
        for &line in lines {
            let function = symbols.function(line);
            let name = symbols.texts.get(function.name);
            let file = symbols.texts.get(function.file);
            let (offset, line) = (offset.unwrap_or(0), line.line);
            writeln!(out, "#\t{frame:#x}\t{name}+{offset:#x}\t{file}:{line}")?;
        }
    }
    Ok(())
}
