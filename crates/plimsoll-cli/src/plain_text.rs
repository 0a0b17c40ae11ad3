//! Text from elsewhere, made fit for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a terminal obeys the character instead of showing it: control characters, characters
/// that change the direction of writing, separators of lines, and format characters that are
/// invisible everywhere. Joiners are not among them, because words of some languages need them.
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

/// The same text on one line, with the numbers of the characters that a terminal would obey.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// The same text with the numbers of the characters that a terminal would obey, except the ends of
/// lines and tabs.
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

/// A writer for reports in lines of text: what a terminal would obey is written by its number, and
/// bytes that are not UTF-8 are replaced. Every report that a person reads goes through it.
///
/// Each write holds whole characters, as those of formatted strings do.
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
    fn nothing_that_a_terminal_obeys_is_left() {
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
