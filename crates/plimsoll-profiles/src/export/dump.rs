//! The text of `debug=2`: each record separately, for people and for readers of Go's format.
//!
//! A record has a header, `goroutine N [state, M minutes, thread "name"]:`, then two lines for each
//! frame, the function and the place. Only the innermost and outermost frames of a deep stack are
//! shown.

use std::fmt::{self, Write};

use plimsoll_leaves::leaves::{LeafRule, visible};
use plimsoll_process::deep_stacks::LEFT_OUT;
use plimsoll_symbolize::is_placeholder;

use super::page::Parts;
use crate::profile::activity::{Creator, Record, Spawned};
use plimsoll_core::escape;
use plimsoll_waits::leak::Leak;

use plimsoll_symbolize::Symbols;

use crate::profile::reading::Stack;
use crate::profile::{leaf_of_creation, leaf_of_thread};

/// Number of frames shown at either end of a stack.
const EITHER_END: usize = 50;

/// The line for an unknown number of frames.
const MORE_ELIDED: &str = "...additional frames elided...\n";

/// Records as text: a part for each, and one for the advice that follows.
pub(super) struct Records {
    pub(super) records: Vec<Record>,
    pub(super) symbols: Symbols,
}

impl Parts for Records {
    fn count(&self) -> usize {
        self.records.len() + 1
    }

    fn put(&self, part: usize, out: &mut String) {
        if let Some(record) = self.records.get(part) {
            if part > 0 {
                out.push('\n');
            }
            let written = put_record(out, record, &self.symbols);
            written.expect("writing to a string cannot fail");
        } else if let Some(advice) = &self.symbols.advice {
            // Readers skip this line, because it is neither a header nor part of a stack.
            out.push_str("\n# ");
            out.push_str(advice);
            out.push('\n');
        }
    }
}

fn put_record(out: &mut String, record: &Record, symbols: &Symbols) -> fmt::Result {
    let activity = &record.activity;
    let frames = record.stacks.first().map_or(&[][..], Stack::frames);
    let (state, reason) = activity.state(|| symbols.names(frames));
    write!(out, "goroutine {} [{}", record.id, reason.unwrap_or(state))?;
    if activity.leak.is_some_and(Leak::is_proved) {
        out.push_str(" (leaked)");
    }
    let minutes = record.waited.map_or(0, |waited| waited.as_secs() / 60);
    if minutes > 0 {
        write!(out, ", {minutes} minutes")?;
    }
    if !activity.name.is_empty() {
        write!(out, ", {} \"", activity.name_label())?;
        put_escaped(out, &activity.name, is_of_headers)?;
        out.push('"');
    }
    if let Some(leak @ Leak::Deadlock(stuck)) = activity.leak {
        write!(out, ", {} {}: waits for ", leak.word(), stuck.circle)?;
        if !stuck.lock.is_empty() {
            out.push('"');
            put_escaped(out, stuck.lock, is_of_headers)?;
            out.push_str("\" of ");
        }
        write!(out, "goroutine {}", stuck.holder)?;
    }
    out.push(']');
    for (at, (key, value)) in activity.labels.iter().enumerate() {
        out.push_str(if at == 0 { " {" } else { ", " });
        put_word(out, key)?;
        out.push_str(": ");
        put_word(out, value)?;
    }
    out.push_str(if activity.labels.is_empty() {
        ":\n"
    } else {
        "}:\n"
    });
    for (at, stack) in record.stacks.iter().enumerate() {
        if at > 0 {
            out.push_str("and waiting in\n");
        }
        put_stack(out, stack.frames(), symbols)?;
    }
    match record.stacks.first() {
        Some(Stack::Unknown(reason)) => {
            // The wording is Go's, which its readers know.
            let unavailable = "goroutine running on other thread; stack unavailable";
            writeln!(out, "\t{unavailable} {reason}")
        }
        _ if !record.is_whole => out.write_str(MORE_ELIDED),
        _ => Ok(()),
    }?;
    match record.creator {
        Some(Creator::Thread(by, frames)) => put_creator(out, by, frames, symbols),
        Some(Creator::Task(spawned)) => put_spawner(out, spawned, symbols),
        None => Ok(()),
    }
}

/// Reports whether a reader would take the character for a part of the header, or a terminal would
/// act on it.
fn is_of_headers(character: char) -> bool {
    matches!(character, '[' | ']' | ',') || !escape::is_printable(character)
}

/// Writes the function that created the thread, and the place of the call.
fn put_creator(out: &mut String, by: u64, frames: &[usize], symbols: &Symbols) -> fmt::Result {
    let frames = frames_of(frames, leaf_of_creation, symbols);
    let Some(frame) = frames.first() else {
        return Ok(());
    };
    out.push_str("created by ");
    put_function(out, frame)?;
    writeln!(out, " in goroutine {by}")?;
    put_place(out, frame)
}

/// Writes the function that created the task, or else the type of its future, and the place of the call.
fn put_spawner(out: &mut String, spawned: Spawned, symbols: &Symbols) -> fmt::Result {
    let frame = spawner(spawned, symbols);
    out.push_str("created by ");
    match &frame {
        Some(frame) => put_function(out, frame),
        None => put_line(out, spawned.type_name),
    }?;
    match spawned.parent {
        Some(by) => writeln!(out, " in goroutine {by}"),
        None => writeln!(out),
    }?;
    match &frame {
        Some(frame) if !frame.file.is_empty() => put_place(out, frame),
        _ => {
            out.push('\t');
            put_line(out, spawned.location.file())?;
            writeln!(out, ":{}", spawned.location.line())
        }
    }
}

/// Parts of the names of Plimsoll's functions by which tasks are created.
const OWN: [&str; 2] = ["plimsoll::", "plimsoll_tasks::"];

/// Returns the frame of the function that created a task: the one at the place of the creation, or, without lines, the
/// innermost of other code than Plimsoll's.
fn spawner<'a>(spawned: Spawned, symbols: &'a Symbols) -> Option<Frame<'a>> {
    let mut frames = frames_of(spawned.stack, leaf_of_creation, symbols);
    let location = spawned.location;
    let is_it = |frame: &Frame<'_>| {
        frame.line == u64::from(location.line()) && frame.file.ends_with(location.file())
    };
    let is_of_program = |frame: &Frame<'_>| {
        let name = frame.function;
        let mapping = symbols.location(frame.address).and_then(|at| at.mapping);
        let file = mapping.map_or("", |at| &symbols.mappings[at as usize].file);
        let is_named = !name.is_empty() && !is_placeholder(name, file);
        let is_own = OWN.iter().any(|own| name.contains(own));
        frame.line == 0 && is_named && !is_own
    };
    let at = frames.iter().position(is_it);
    let at = at.or_else(|| frames.iter().position(is_of_program))?;
    Some(frames.swap_remove(at))
}

/// A visible frame: one of the calls at a return address.
pub struct Frame<'a> {
    pub(super) address: usize,
    pub(super) function: &'a str,
    pub(super) file: &'a str,
    pub(super) line: u64,
    /// The distance of the address from the start of the function; `None` for an inlined call.
    offset: Option<usize>,
}

fn put_stack(out: &mut String, stack: &[usize], symbols: &Symbols) -> fmt::Result {
    put_frames(out, &frames_of(stack, leaf_of_thread, symbols))
}

/// Returns all calls of a stack, except hidden ones at the leaf.
pub fn frames_of<'a>(stack: &[usize], leaf: LeafRule, symbols: &'a Symbols) -> Vec<Frame<'a>> {
    let (skip, mut hidden) = visible(stack, leaf, symbols);
    let mut frames = Vec::with_capacity(stack.len());
    for &address in &stack[skip..] {
        let before = frames.len();
        if let Some(location) = symbols.location(address) {
            let lines = &symbols.lines(location)[hidden..];
            frames.extend(lines.iter().enumerate().map(|(at, &line)| {
                let function = symbols.function(line);
                let physical = at + 1 == lines.len();
                Frame {
                    address,
                    function: symbols.texts.get(function.name),
                    file: symbols.texts.get(function.file),
                    line: line.line,
                    offset: physical.then(|| location.symbol_offset.unwrap_or(0)),
                }
            }));
        }
        hidden = 0;
        if frames.len() == before {
            frames.push(Frame {
                address,
                function: "",
                file: "",
                line: 0,
                offset: Some(0),
            });
        }
    }
    frames
}

/// Writes the frames, or only those at either end of a deep stack.
fn put_frames(out: &mut String, frames: &[Frame<'_>]) -> fmt::Result {
    let is_limited = frames.iter().any(|frame| frame.address == LEFT_OUT);
    let elided = frames.len().saturating_sub(2 * EITHER_END);
    for (at, frame) in frames.iter().enumerate() {
        if elided > 0 && at == EITHER_END {
            match is_limited {
                true => out.push_str(MORE_ELIDED),
                false => writeln!(out, "...{elided} frames elided...")?,
            }
        }
        if elided == 0 || at < EITHER_END || at >= EITHER_END + elided {
            put_frame(out, frame)?;
        }
    }
    Ok(())
}

fn put_frame(out: &mut String, frame: &Frame<'_>) -> fmt::Result {
    if frame.address == LEFT_OUT {
        out.push_str(MORE_ELIDED);
        return Ok(());
    }
    put_function(out, frame)?;
    out.push_str("(...)\n");
    put_place(out, frame)
}

fn put_function(out: &mut String, frame: &Frame<'_>) -> fmt::Result {
    match frame.function {
        "" => write!(out, "{:#x}", frame.address),
        // A frame occupies one line.
        function => put_line(out, function),
    }
}

fn put_place(out: &mut String, frame: &Frame<'_>) -> fmt::Result {
    out.push('\t');
    match frame.file {
        "" => out.push_str("??"),
        file => put_line(out, file)?,
    }
    write!(out, ":{}", frame.line)?;
    match frame.offset {
        Some(offset) => writeln!(out, " +{offset:#x}"),
        None => writeln!(out),
    }
}

/// Writes a key or value in Go's form: in quotes unless it is plain.
fn put_word(out: &mut String, text: &str) -> fmt::Result {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'_');
    if text.bytes().all(plain) {
        out.push_str(text);
        return Ok(());
    }
    out.push('"');
    put_escaped(out, text, |character| !character.is_ascii())?;
    out.push('"');
    Ok(())
}

/// Writes text into a line that has no other variable content.
fn put_line(out: &mut String, text: &str) -> fmt::Result {
    put_escaped(out, text, |character| !escape::is_printable(character))
}

/// Escapes text as Go does in headers.
fn put_escaped(out: &mut String, text: &str, special: fn(char) -> bool) -> fmt::Result {
    escape::put_escaped(out, text, escape::OF_HEADERS, special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> String {
        let mut out = String::new();
        put_word(&mut out, text).unwrap();
        out
    }

    /// Returns the lines of a stack in which every third call is inlined.
    fn lines(count: usize) -> Vec<String> {
        let frames: Vec<_> = (0..count)
            .map(|at| Frame {
                address: 0x1000 + at,
                function: "f",
                file: "f.rs",
                line: at as u64,
                offset: (at % 3 != 0).then_some(16),
            })
            .collect();
        let mut out = String::new();
        put_frames(&mut out, &frames).unwrap();
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn fifty_frames_of_either_end_are_shown() {
        for count in [0, 1, 99, 100] {
            let lines = lines(count);
            assert_eq!(lines.len(), 2 * count);
            assert!(!lines.iter().any(|line| line.contains("elided")));
        }
        for elided in [1, 2, 3, 10, 1000] {
            let lines = lines(100 + elided);
            assert_eq!(lines.len(), 201);
            assert_eq!(lines[100], format!("...{elided} frames elided..."));
            assert_eq!(lines[99], "\tf.rs:49 +0x10");
            assert!(lines[102].starts_with(&format!("\tf.rs:{}", 50 + elided)));
        }
        assert_eq!(lines(1), ["f(...)", "\tf.rs:0"]);
    }

    #[test]
    fn words_are_quoted_as_go_does() {
        for (text, expected) in [
            ("abc.D/e_9", "abc.D/e_9"),
            ("", ""),
            ("a b", "\"a b\""),
            ("-", "\"-\""),
            ("\n\r\t\"\\", r#""\n\r\t\"\\""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("é", r#""\u00e9""#),
            ("😀", r#""\U0001f600""#),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
