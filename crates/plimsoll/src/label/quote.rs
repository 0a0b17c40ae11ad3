//! Go's quoting of strings.

use std::fmt::Write;

/// A string as Go's `%q` writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        escape(character, &mut quoted);
    }
    quoted.push('"');
    quoted
}

fn escape(character: char, out: &mut String) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0b' => out.push_str("\\v"),
        '\x0c' => out.push_str("\\f"),
        '\0'..='\x1f' | '\x7f' => {
            let _ = write!(out, "\\x{:02x}", u32::from(character));
        }
        // What has no picture of its own.
        '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        }
        _ => out.push(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_in_go() {
        for (text, wanted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("\"\\", r#""\"\\""#),
            ("\n\r\t\x07\x08\x0b\x0c", r#""\n\r\t\a\b\v\f""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("größe", r#""größe""#),
            ("\u{a0}\u{feff}", r#""\u00a0\ufeff""#),
        ] {
            assert_eq!(quoted(text), wanted);
        }
    }
}
