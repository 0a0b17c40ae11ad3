//! Values from a request in a line of text.

/// The number of characters of a value that are repeated.
const LONGEST: usize = 100;

/// Quotes a value from a request, escapes what could end or reverse a line, and truncates it.
pub(crate) fn quoted(value: &str) -> String {
    let short: String = value.chars().take(LONGEST).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_end_a_line_or_change_its_direction() {
        let quote = quoted("a\u{202e}\r\n\u{1b}\"");
        assert_eq!(quote, r#""a\u{202e}\r\n\u{1b}\"""#);
        assert_eq!(quoted(&"x".repeat(1000)).len(), LONGEST + 2);
    }
}
