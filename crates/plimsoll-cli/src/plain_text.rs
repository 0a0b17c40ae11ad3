//! Text from elsewhere, made fit for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// The same text on one line, without anything that a terminal would obey: control characters, and
/// those that change the direction of writing, are shown by their numbers.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let obeyed = |character: char| {
        character.is_control()
            || matches!(
                character,
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            )
    };
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if obeyed(character) {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert!(matches!(plain("Grüße, 世界"), Cow::Borrowed(_)));
        assert_eq!(plain("a\x1b[31mb\nc\t"), "a\\u{1b}[31mb\\u{a}c\\u{9}");
        assert_eq!(plain("\u{9b}x\u{202e}y\u{7f}"), "\\u{9b}x\\u{202e}y\\u{7f}");
    }
}
