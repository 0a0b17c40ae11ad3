//! The text format of `debug=1`: addresses for tools, and names below them for people.

use std::fmt::Write;

use super::shown::shown;
use crate::profile::reading::TextReading;
use crate::symbol::Symbols;

pub(crate) fn write(reading: &TextReading, symbols: &Symbols) -> String {
    let mut text = reading.head.clone();
    for (row, stack) in &reading.rows {
        text.push_str(row);
        text.push_str(" @");
        for frame in *stack {
            push(&mut text, format_args!(" {frame:#x}"));
        }
        text.push('\n');
        frames(&mut text, stack, symbols);
        text.push('\n');
    }
    text.push_str(&reading.tail);
    text
}

/// A line for each frame from the first that is shown: its address, function, offset in it, file
/// and line.
fn frames(text: &mut String, stack: &[usize], symbols: &Symbols) {
    let (shown, mut hidden_lines) = shown(stack, symbols);
    for &frame in shown {
        let location = symbols.location(frame);
        let lines = location.map_or(&[][..], |location| &symbols.lines(location)[hidden_lines..]);
        hidden_lines = 0;
        if lines.is_empty() {
            push(text, format_args!("#\t{frame:#x}\n"));
        }
        let offset = location.and_then(|location| location.symbol_offset);
        for &line in lines {
            let function = symbols.function(line);
            let name = symbols.texts.get(function.name);
            let file = symbols.texts.get(function.file);
            let offset = offset.unwrap_or(0);
            push(
                text,
                format_args!("#\t{frame:#x}\t{name}+{offset:#x}\t{file}:{}\n", line.line),
            );
        }
    }
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a string cannot fail");
}
