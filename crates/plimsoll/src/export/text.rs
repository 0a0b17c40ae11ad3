//! The text format of `debug=1`: addresses for tools, and names below them for people.

use std::fmt::{self, Write};

use super::labels::labels;
use super::shown::shown;
use crate::escape::put_quoted;
use crate::profile::reading::{LeafRule, Row, TextReading};
use crate::symbol::Symbols;

/// The reading as text.
pub(crate) fn write(reading: &TextReading, idle: bool, symbols: &Symbols) -> String {
    // It can be long: its length is found out first, so that nothing is moved while it grows.
    let mut length = Length(0);
    put(&mut length, reading, idle, symbols);
    let mut text = String::with_capacity(length.0);
    put(&mut text, reading, idle, symbols);
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

fn put(out: &mut impl Write, reading: &TextReading, idle: bool, symbols: &Symbols) {
    let written = try_put(out, reading, idle, symbols);
    written.expect("neither counting nor a string fails");
}

fn try_put(
    out: &mut impl Write,
    reading: &TextReading,
    idle: bool,
    symbols: &Symbols,
) -> fmt::Result {
    out.write_str(&reading.head)?;
    for Row { values, stack, tag } in &reading.rows {
        let frames = stack.frames();
        let labels = labels(tag, frames, symbols);
        if !idle && labels.are_idle() {
            continue;
        }
        write!(out, "{values} @")?;
        for frame in frames {
            write!(out, " {frame:#x}")?;
        }
        out.write_char('\n')?;
        put_labels(out, &labels.texts())?;
        put_frames(out, frames, reading.leaf, symbols)?;
        out.write_char('\n')?;
    }
    out.write_str(&reading.tail)?;
    match &symbols.advice {
        Some(advice) => writeln!(out, "# {advice}"),
        None => Ok(()),
    }
}

/// `# labels: {"key":"value", "key2":"value2"}`, as Go writes them.
fn put_labels(out: &mut impl Write, labels: &[(&str, &str)]) -> fmt::Result {
    for (at, (key, value)) in labels.iter().enumerate() {
        out.write_str(if at == 0 { "# labels: {" } else { ", " })?;
        put_quoted(out, key)?;
        out.write_char(':')?;
        put_quoted(out, value)?;
    }
    out.write_str(if labels.is_empty() { "" } else { "}\n" })
}

/// A line for each frame that is shown: its address, function, offset in it, file and line.
fn put_frames(
    out: &mut impl Write,
    stack: &[usize],
    leaf: LeafRule,
    symbols: &Symbols,
) -> fmt::Result {
    let (shown, mut hidden_lines) = shown(stack, leaf, symbols);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted_as_go_does() {
        let mut text = String::new();
        put_labels(&mut text, &[("a", "b"), ("k\n", "\"\\\u{1}\u{85}é")]).unwrap();
        assert_eq!(
            text,
            "# labels: {\"a\":\"b\", \"k\\n\":\"\\\"\\\\\\x01\\u0085é\"}\n"
        );
        put_labels(&mut text, &[]).unwrap();
        assert!(text.ends_with("}\n"));
    }
}
