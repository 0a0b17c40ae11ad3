//! Makes texts of the watched program safe to show.
//!
//! Names of functions, labels and errors may hold any characters. The program, or a server that
//! responds in its place, must not be able to control the user's terminal. It could move the
//! cursor, set colours or the title, or reverse the direction of text. Every text from outside
//! passes through [`clean`] where it enters.

use unicode_width::UnicodeWidthChar;

/// The maximum length of a cleaned text in characters.
const LONGEST: usize = 400;

/// Returns the text without characters that occupy no column. Control characters become `?`, white
/// space of any kind becomes a space, and characters without width are removed. The result has at
/// most [`LONGEST`] characters.
pub fn clean(text: &str) -> String {
    // Removed characters are examined too, but not without limit.
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

/// Replaces characters that are not ASCII by `?`, for terminals without UTF-8.
pub fn ascii(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_ascii() { character } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_sequence_remains() {
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
