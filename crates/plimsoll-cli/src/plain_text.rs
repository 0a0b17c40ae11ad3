//! Makes text from other sources safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

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
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
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

/// A writer for text reports. It escapes characters that a terminal would interpret, and replaces
/// bytes that are not UTF-8. All text reports for users go through it.
///
/// Each write must hold whole characters, as writes of formatted strings do.
pub(crate) struct PlainText<W>(pub(crate) W);

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
}
