//! Texts of the watched program, so that they can be shown.
//!
//! Names of functions, labels and errors may hold anything: whoever wrote the program, or whoever
//! answers in its place, must not be able to move the cursor, set colours or titles, or turn the
//! direction of writing in the terminal of who looks. Every text from outside goes through
//! [`clean`] where it comes in.

use unicode_width::UnicodeWidthChar;

/// The longest text that is kept, in characters.
const LONGEST: usize = 400;

/// Without anything that does not take up room of its own: control characters are `?`, white space
/// of any kind is a space, and what has no width is left out. Not longer than [`LONGEST`].
pub(super) fn clean(text: &str) -> String {
    // What is left out is looked at as well, but not without end.
    let looked_at = text.chars().take(10 * LONGEST);
    looked_at.filter_map(cleaned).take(LONGEST).collect()
}

fn cleaned(character: char) -> Option<char> {
    match character {
        ' '..='~' => Some(character),
        _ if character.is_whitespace() => Some(' '),
        _ => match character.width() {
            None => Some('?'),
            Some(0) => None,
            Some(_) => Some(character),
        },
    }
}

/// With a `?` for whatever a terminal without UTF-8 cannot show.
pub(super) fn ascii(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_ascii() { character } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let hostile = "\u{1b}[2J\u{1b}]0;title\u{7}a\rb\nc\td\u{9b}31m\u{7f}\0\u{202e}e\u{200b}f\u{301}\u{2028}g";
        let cleaned = clean(hostile);
        assert_eq!(cleaned, "?[2J?]0;title?a b c d?31m??ef g");
        for number in 0..=0x10_ffff {
            let Some(character) = char::from_u32(number) else {
                continue;
            };
            for character in clean(&character.to_string()).chars() {
                assert!(!character.is_control(), "{number:#x}");
                assert!(character.width() > Some(0), "{number:#x}");
                let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
                assert!(!turns, "{number:#x}");
            }
        }
    }

    #[test]
    fn plain_names_stay() {
        let name = "<search::Größe<'_> as 検索>::{{closure}}";
        assert_eq!(clean(name), name);
        assert_eq!(ascii("Größe"), "Gr??e");
    }

    #[test]
    fn texts_without_end_have_one() {
        assert_eq!(clean(&"x".repeat(1 << 20)).len(), LONGEST);
        assert_eq!(clean(&"\u{301}".repeat(1 << 20)), "");
    }
}
