//! Text within a line or within quotes, with Go's escapes for characters that cannot appear there.
//!
//! Go writes control characters in two ways. Quoted strings use every letter escape of C. The
//! headers of goroutines use letters for the ends of lines and for tabs, and numbers for all
//! others. Both write other unprintable characters by number.

use std::fmt::{self, Write};

/// The control characters with a letter escape, with that letter.
pub type Letters = [(char, char)];

/// The letters in a quoted string.
pub const OF_STRINGS: &Letters = &[
    ('\n', 'n'),
    ('\r', 'r'),
    ('\t', 't'),
    ('\x07', 'a'),
    ('\x08', 'b'),
    ('\x0b', 'v'),
    ('\x0c', 'f'),
];

/// The letters in the header of a goroutine.
pub const OF_HEADERS: &Letters = &[('\n', 'n'), ('\r', 'r'), ('\t', 't')];

/// Writes a string in the form of Go's `%q`.
pub fn put_quoted(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    put_escaped(out, text, OF_STRINGS, |character| !is_printable(character))?;
    out.write_char('"')
}

/// Returns whether Go prints a character unescaped: letters, marks, numbers, punctuation, symbols,
/// and the ASCII space. Uses the table of the standard library, which escapes the other characters
/// too.
pub fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Not at the start of the string, where `escape_debug` also escapes combining marks.
    let mut text = [b'a'; 5];
    let length = 1 + character.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    text.escape_debug().nth(1) == Some(character)
}

/// Writes a name; replaces characters that are [not printable](is_printable) by their numbers. Such
/// characters end a line, control a terminal, or change the direction of the text.
pub fn put_name(out: &mut impl Write, name: &str) -> fmt::Result {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return out.write_str(name);
    }
    for character in name.chars() {
        if is_printable(character) {
            out.write_char(character)?;
        } else {
            put_number(out, character)?;
        }
    }
    Ok(())
}

/// Writes text with escapes for quotes, backslashes, control characters, and `special` characters.
pub fn put_escaped(
    out: &mut impl Write,
    text: &str,
    letters: &Letters,
    special: fn(char) -> bool,
) -> fmt::Result {
    for character in text.chars() {
        let letter = letters.iter().find(|(of, _)| *of == character);
        match (character, letter) {
            ('"' | '\\', _) => write!(out, "\\{character}")?,
            (_, Some((_, letter))) => write!(out, "\\{letter}")?,
            (other, None) if other.is_control() || special(other) => put_number(out, other)?,
            (other, None) => out.write_char(other)?,
        }
    }
    Ok(())
}

fn put_number(out: &mut impl Write, character: char) -> fmt::Result {
    match u32::from(character) {
        number @ 0..0x80 => write!(out, "\\x{number:02x}"),
        number @ 0x80..0x1_0000 => write!(out, "\\u{number:04x}"),
        number => write!(out, "\\U{number:08x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(letters: &Letters, special: fn(char) -> bool, text: &str) -> String {
        let mut out = String::new();
        put_escaped(&mut out, text, letters, special).unwrap();
        out
    }

    #[test]
    fn letters_are_those_of_the_place() {
        let text = "\"\\\n\r\t\x07\x08\x0b\x0c\0\x1b\x7f\u{85}é";
        assert_eq!(
            escaped(OF_STRINGS, |_| false, text),
            r#"\"\\\n\r\t\a\b\v\f\x00\x1b\x7f\u0085é"#
        );
        assert_eq!(
            escaped(OF_HEADERS, |_| false, text),
            r#"\"\\\n\r\t\x07\x08\x0b\x0c\x00\x1b\x7f\u0085é"#
        );
    }

    #[test]
    fn strings_are_quoted_as_in_go() {
        for (text, wanted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("\"\\", r#""\"\\""#),
            ("\n\r\t\x07\x08\x0b\x0c", r#""\n\r\t\a\b\v\f""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("größe, e\u{301}, 漢字, 😀", "\"größe, e\u{301}, 漢字, 😀\""),
            ("\u{85}\u{a0}\u{ad}", r#""\u0085\u00a0\u00ad""#),
            ("\u{200b}\u{2003}\u{2028}", r#""\u200b\u2003\u2028""#),
            ("\u{3000}\u{e000}\u{feff}", r#""\u3000\ue000\ufeff""#),
            ("\u{e0001}\u{10ffff}", r#""\U000e0001\U0010ffff""#),
        ] {
            let mut quoted = String::new();
            put_quoted(&mut quoted, text).unwrap();
            assert_eq!(quoted, wanted);
        }
    }

    #[test]
    fn names_keep_their_characters_except_those_that_terminals_act_on() {
        let plain = "<a::B<\"c\\d\"> as größe::漢字>::{closure#0}";
        let mut shown = String::new();
        put_name(&mut shown, plain).unwrap();
        assert_eq!(shown, plain);
        let active = ('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
            .chain(['\u{200e}', '\u{200f}', '\u{61c}', '\u{2028}', '\u{feff}'])
            .chain(['\n', '\r', '\t', '\x1b', '\x7f', '\u{9b}']);
        for character in active {
            let mut shown = String::new();
            put_name(&mut shown, &format!("a{character}b")).unwrap();
            let number = u32::from(character);
            let wanted = match number {
                0..0x80 => format!("a\\x{number:02x}b"),
                _ => format!("a\\u{number:04x}b"),
            };
            assert_eq!(shown, wanted);
        }
    }

    #[test]
    fn special_characters_are_written_by_number() {
        let special = |character: char| character == '[' || !character.is_ascii();
        assert_eq!(
            escaped(OF_HEADERS, special, "[]é😀"),
            r"\x5b]\u00e9\U0001f600"
        );
    }
}
