//! Go's quoting of strings.

use crate::escape::put_quoted;

/// A string as Go's `%q` writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    put_quoted(&mut quoted, text, has_no_picture).expect("writing to a string cannot fail");
    quoted
}

/// Whether it is one of those that are no control characters, and are not to be seen either.
fn has_no_picture(character: char) -> bool {
    matches!(
        character,
        '\u{a0}' | '\u{ad}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
    )
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
