//! Text of limited size.

use std::borrow::Cow;

use plimsoll_command::plain_text::plain;
use plimsoll_command::report::measure::alone;
use plimsoll_launch::run::units::bytes;

/// The maximum size of a summary in bytes.
pub(super) const MAX_BYTES: usize = 3072;

/// The maximum size of a line, with its end.
const MAX_LINE: usize = 160;

/// The space for the line that states how many lines are missing.
const RESERVE: usize = 48;

/// The text that replaces an omitted part.
const DOTS: &str = "...";

/// Lines that together have at most [`MAX_BYTES`]. Characters that a terminal would interpret are escaped.
#[derive(Debug, Default)]
pub(super) struct Limited {
    text: String,
    missing: usize,
}

impl Limited {
    /// Adds a line, whose end is cut if it is too long.
    pub(super) fn line(&mut self, line: &str) {
        self.long_line(line, MAX_LINE);
    }

    /// Adds a line of at most `most` bytes.
    pub(super) fn long_line(&mut self, line: &str, most: usize) {
        let line = plain(line);
        let line = begin(line.trim_end(), most - 1);
        if self.missing > 0 || self.text.len() + line.len() + 1 > MAX_BYTES - RESERVE {
            self.missing += 1;
            return;
        }
        self.text.push_str(&line);
        self.text.push('\n');
    }

    /// Returns the text.
    pub(super) fn finish(mut self) -> String {
        if self.missing > 0 {
            let plural = if self.missing == 1 { "" } else { "s" };
            let missing = self.missing;
            self.text
                .push_str(&format!("({missing} line{plural} left out)\n"));
        }
        self.text
    }
}

/// Formats a value: bytes in the units of all sizes of a summary.
pub(super) fn amount(value: i64, unit: &str) -> String {
    match (u64::try_from(value), unit) {
        (Ok(value), "bytes") => bytes(value),
        _ => alone(value, unit, false),
    }
}

/// Returns the beginning of a text with at most `most` bytes.
pub(super) fn begin(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let mut end = most.saturating_sub(DOTS.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}{DOTS}", &text[..end]))
}

/// Returns the end of a text with at most `most` bytes.
pub(super) fn end(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let mut start = text.len() - most.saturating_sub(DOTS.len());
    while !text.is_char_boundary(start) {
        start += 1;
    }
    Cow::Owned(format!("{DOTS}{}", &text[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_exceeds_the_limit() {
        for line in [
            "a".repeat(100_000),
            "\u{1b}".repeat(1000),
            "世".repeat(1000),
            "x\n".repeat(9),
        ] {
            let mut text = Limited::default();
            for _ in 0..1000 {
                text.line(&line);
                text.long_line(&line, 240);
            }
            let text = text.finish();
            assert!(text.len() <= MAX_BYTES, "{}", text.len());
            assert!(text.ends_with(" lines left out)\n"), "{text}");
            assert!(text.lines().all(|line| line.len() < 240));
        }
    }

    #[test]
    fn all_lines_are_kept_if_they_fit() {
        let mut text = Limited::default();
        for number in 0..20 {
            text.line(&format!("line {number}  "));
        }
        let text = text.finish();
        assert_eq!(text.lines().count(), 20);
        assert!(text.ends_with("line 19\n"));
    }

    #[test]
    fn parts_end_between_characters() {
        assert_eq!(begin("abc", 3), "abc");
        assert_eq!(begin("ab世世", 7), "ab...");
        assert_eq!(end("世世ab", 7), "...ab");
        assert_eq!(end("世世ab", 8), "世世ab");
    }
}
