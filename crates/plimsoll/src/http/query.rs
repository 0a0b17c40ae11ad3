//! Parameters of a request, read as Go's `net/url` reads them.

/// The first value of a parameter, decoded; empty if it is not there. Parts with broken escapes or
/// a semicolon are left out, as Go leaves them out.
pub(super) fn first<'a>(query: &'a str, name: &str) -> std::borrow::Cow<'a, str> {
    for part in query.split('&') {
        if part.is_empty() || part.contains(';') {
            continue;
        }
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (Some(key), Some(value)) = (decode(key), decode(value)) else {
            continue;
        };
        if key == name {
            return value.into_owned().into();
        }
    }
    "".into()
}

/// A parameter that is a number; anything else, and a number that does not fit, is 0.
pub(super) fn number(query: &str, name: &str) -> i64 {
    integer(&first(query, name)).unwrap_or(0)
}

/// Decimal digits with an optional sign.
pub(super) fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Percent escapes and plus signs undone; bytes that are not UTF-8 are replaced. `None` if an
/// escape is broken.
fn decode(text: &str) -> Option<std::borrow::Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = (rest.next()? as char).to_digit(16)?;
                let low = (rest.next()? as char).to_digit(16)?;
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_counts() {
        assert_eq!(first("a=1&b=2&a=3", "a"), "1");
        assert_eq!(first("a=&a=3", "a"), "");
        assert_eq!(first("a", "a"), "");
        assert_eq!(first("", "a"), "");
        assert_eq!(first("&&=x&a=1", "a"), "1");
        assert_eq!(first("A=1", "a"), "");
    }

    #[test]
    fn escapes_are_undone_and_broken_ones_left_out() {
        assert_eq!(first("a=%31+%2B", "a"), "1 +");
        assert_eq!(first("%61=7", "a"), "7");
        assert_eq!(first("a=%3&a=2", "a"), "2");
        assert_eq!(first("a=%zz&a=2", "a"), "2");
        assert_eq!(first("a=%", "a"), "");
        assert_eq!(first("a=1;b=2&a=3", "a"), "3");
        assert_eq!(first("a=%ff%fe", "a"), "\u{fffd}\u{fffd}");
        assert_eq!(first("a=é", "a"), "é");
    }

    #[test]
    fn what_is_not_a_number_is_zero() {
        assert_eq!(number("debug=2", "debug"), 2);
        assert_eq!(number("debug=-1", "debug"), -1);
        assert_eq!(number("debug=+1", "debug"), 0, "a plus sign is a space");
        assert_eq!(number("debug=%2B1", "debug"), 1);
        for wrong in [
            "",
            "debug",
            "debug=",
            "debug=x",
            "debug=1.5",
            "debug=0x1",
            "debug=99999999999999999999",
            "debug=1 ",
        ] {
            assert_eq!(number(wrong, "debug"), 0, "{wrong}");
        }
    }
}
