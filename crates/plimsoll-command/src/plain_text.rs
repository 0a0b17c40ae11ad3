//! Makes text from other sources safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Returns the bytes in hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether a terminal interprets the character instead of showing it: control characters,
/// bidirectional formatting characters, line separators, and format characters that are always
/// invisible. Joiners are excluded, because words of some languages need them.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns the text on one line. Characters that a terminal would interpret are escaped.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// Returns the text. Characters that a terminal would interpret are escaped, except line feeds and
/// tabs.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        is_obeyed(character) && !matches!(character, '\n' | '\t')
    })
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Returns JSON of the same meaning, in which characters that a terminal would interpret are escaped.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    // Between strings, which escape them, are line feeds.
    let is_escaped = |character: char| character != '\n' && is_obeyed(character);
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Returns the text without user names and passwords in URLs.
pub(crate) fn without_credentials(text: &str) -> Cow<'_, str> {
    const SCHEME_END: &str = "://";
    let Some(at) = text.find(SCHEME_END) else {
        return Cow::Borrowed(text);
    };
    let (before, rest) = text.split_at(at + SCHEME_END.len());
    let is_end = |character: char| "/?#".contains(character) || character.is_whitespace();
    let authority = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    let hidden = if host > 0 { "...@" } else { "" };
    let after = without_credentials(&rest[host..]);
    Cow::Owned(format!("{before}{hidden}{after}"))
}

/// A writer for text reports. It escapes characters that a terminal would interpret, and replaces
/// bytes that are not UTF-8. All text reports for users go through it.
///
/// Each write must hold whole characters, as writes of formatted strings do.
pub struct PlainText<W>(pub W);

impl<W: Write> Write for PlainText<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(plain_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_remains() {
        assert!(matches!(plain("Grüße, 世界"), Cow::Borrowed(_)));
        assert_eq!(plain("a\x1b[31mb\nc\t"), "a\\u{1b}[31mb\\u{a}c\\u{9}");
        assert_eq!(plain("\u{9b}x\u{202e}y\u{7f}"), "\\u{9b}x\\u{202e}y\\u{7f}");
        assert_eq!(plain("\u{feff}\u{e0041}"), "\\u{feff}\\u{e0041}");
    }

    #[test]
    fn reports_keep_their_lines_and_columns() {
        let mut report = PlainText(Vec::new());
        writeln!(report, "a\tb\u{2067}c").unwrap();
        report.write_all(b"\x1b[2J\xff\n").unwrap();
        let text = String::from_utf8(report.0).unwrap();
        assert_eq!(text, "a\tb\\u{2067}c\n\\u{1b}[2J\u{fffd}\n");
    }

    #[test]
    fn json_has_no_character_that_a_terminal_obeys_and_keeps_its_meaning() {
        let value =
            serde_json::json!({"a\u{9b}": "\u{202e}x\n\u{e0001}検索\"", "b": [1, "\u{200d}"]});
        for json in [value.to_string(), format!("{value:#}")] {
            let text = plain_json(&json);
            assert!(
                !text.contains(['\u{9b}', '\u{202e}', '\u{e0001}']),
                "{text}"
            );
            assert!(text.contains("検索") && text.contains("\\u009b"), "{text}");
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&text).unwrap(),
                value
            );
        }
    }

    #[test]
    fn passwords_in_urls_are_not_shown() {
        for (text, shown) in [
            ("http://user:pass@host:1/a@b", "http://...@host:1/a@b"),
            ("x http://a:b@c@host", "x http://...@host"),
            (
                "http://user@a, https://b:c@d?e@f",
                "http://...@a, https://...@d?e@f",
            ),
            ("http://host/", "http://host/"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }
}
