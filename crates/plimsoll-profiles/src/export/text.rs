//! The text format of `debug=1`: addresses for tools, followed by names for people.

use std::fmt::{self, Write};

use plimsoll_leaves::leaves::LeafRule;
use plimsoll_leaves::shown::shown;

use super::labels::labels;
use super::page::Parts;
use plimsoll_core::escape::{put_name, put_quoted};
use plimsoll_core::stack;

use plimsoll_symbolize::Symbols;

use crate::profile::reading::{Row, TextReading};

/// A reading as text: a part for its head, one for each row, and one for its tail.
pub(super) struct Rows {
    pub(super) reading: TextReading,
    /// Whether waits of idle threads are included.
    pub(super) idle: bool,
    pub(super) symbols: Symbols,
}

impl Parts for Rows {
    fn count(&self) -> usize {
        self.reading.rows.len() + 2
    }

    fn put(&self, part: usize, out: &mut String) {
        let row = part.checked_sub(1);
        let written = match row.map(|row| self.reading.rows.get(row)) {
            None => out.write_str(&self.reading.head),
            Some(Some(row)) => self.put_row(row, out),
            Some(None) => self.put_tail(out),
        };
        written.expect("writing to a string cannot fail");
    }
}

impl Rows {
    fn put_row(&self, row: &Row, out: &mut String) -> fmt::Result {
        let Row { values, stack, tag } = row;
        let frames = stack.frames();
        let labels = labels(tag, frames, &self.symbols);
        if !self.idle && labels.are_idle() {
            return Ok(());
        }
        write!(out, "{values} @")?;
        for frame in frames {
            write!(out, " {frame:#x}")?;
        }
        out.write_char('\n')?;
        put_labels(out, &labels.texts())?;
        put_frames(out, frames, self.reading.leaf, &self.symbols)?;
        for name in stack.categories().iter().rev() {
            out.write_str("#\t")?;
            put_name(out, name)?;
            out.write_char('\n')?;
        }
        out.write_char('\n')
    }

    fn put_tail(&self, out: &mut String) -> fmt::Result {
        out.write_str(&self.reading.tail)?;
        match &self.symbols.advice {
            Some(advice) => writeln!(out, "# {advice}"),
            None => Ok(()),
        }
    }
}

/// Writes `# labels: {"key":"value", "key2":"value2"}`, as Go does.
fn put_labels(out: &mut impl Write, labels: &[(&str, &str)]) -> fmt::Result {
    for (at, (key, value)) in labels.iter().enumerate() {
        out.write_str(if at == 0 { "# labels: {" } else { ", " })?;
        put_quoted(out, key)?;
        out.write_char(':')?;
        put_quoted(out, value)?;
    }
    out.write_str(if labels.is_empty() { "" } else { "}\n" })
}

/// Writes a line for each visible frame: its address, function, offset in the function, file and
/// line.
fn put_frames(
    out: &mut impl Write,
    frames: &[usize],
    leaf: LeafRule,
    symbols: &Symbols,
) -> fmt::Result {
    let (shown, mut hidden_lines) = shown(frames, leaf, symbols, stack::depth().max(1));
    for frame in shown {
        let location = symbols.location(frame);
        let lines = location.map_or(&[][..], |location| &symbols.lines(location)[hidden_lines..]);
        hidden_lines = 0;
        if lines.is_empty() {
            writeln!(out, "#\t{frame:#x}")?;
        }
        let is_named = location.is_some_and(|location| location.is_named);
        let offset = location.and_then(|location| location.symbol_offset);
        for &line in lines {
            let function = symbols.function(line);
            let name = symbols.texts.get(function.name);
            let file = symbols.texts.get(function.file);
            let (offset, line) = (offset.unwrap_or(0), line.line);
            write!(out, "#\t{frame:#x}\t")?;
            put_name(out, name)?;
            if !is_named {
                // The name has the offset in the module.
                out.write_char('\n')?;
                continue;
            }
            write!(out, "+{offset:#x}\t")?;
            put_name(out, file)?;
            writeln!(out, ":{line}")?;
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
