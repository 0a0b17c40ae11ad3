//! Strings in JSON.

use std::fmt::{self, Write};

/// Writes a JSON string, which is also safe if a client interprets it as HTML.
pub(crate) fn put_string(out: &mut String, text: &str) -> fmt::Result {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..'\x20' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(character))?;
            }
            other => out.push(other),
        }
    }
    out.push('"');
    Ok(())
}
