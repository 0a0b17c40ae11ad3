//! Calls as JSON.

use std::fmt::{self, Write};

use plimsoll_process::deep_stacks::{LEFT_OUT_NAME, ends};

use super::dump::Frame;
use plimsoll_stats::json;

/// The maximum number of frames of a stack.
const MAX_FRAMES: usize = 100;

/// Writes the frames, separated by commas: `{"function":"","file":"","line":n}`. An unknown function has
/// its address as its name.
pub fn put_frames(text: &mut String, frames: &[Frame<'_>]) -> fmt::Result {
    let (leaf, root) = ends(frames, MAX_FRAMES);
    put_all(text, leaf)?;
    if !root.is_empty() {
        text.push(',');
        put_frame(text, LEFT_OUT_NAME, "", 0)?;
        text.push(',');
        put_all(text, root)?;
    }
    Ok(())
}

fn put_all(text: &mut String, frames: &[Frame<'_>]) -> fmt::Result {
    for (at, frame) in frames.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match frame {
            Frame {
                function: "",
                address,
                ..
            } => put_frame(text, &format!("{address:#x}"), "", 0)?,
            frame => put_frame(text, frame.function, frame.file, frame.line)?,
        }
    }
    Ok(())
}

pub(super) fn put_frame(text: &mut String, function: &str, file: &str, line: u64) -> fmt::Result {
    text.push_str("{\"function\":");
    json::put_string(text, function)?;
    text.push_str(",\"file\":");
    json::put_string(text, file)?;
    write!(text, ",\"line\":{line}}}")
}
