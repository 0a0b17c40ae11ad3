//! Parses the parameters of a request as Go's `net/url` does.

use std::borrow::Cow;
use std::num::ParseIntError;

use crate::quoted::quoted;

/// Returns the first value of a parameter, decoded; empty if it is absent. Parts with broken
/// escapes or a semicolon are ignored, as in Go.
pub fn first<'a>(query: &'a str, name: &str) -> Cow<'a, str> {
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

/// Refuses parameters that a page would ignore. `known` are those of the page; a name for which
/// `has_meaning` is false is ignored, as Go ignores it. A known parameter must be there once, and with
/// valid escapes: otherwise a part of it would be ignored.
///
/// # Errors
/// The first such parameter, with the reason.
pub fn refuse_others(
    query: &str,
    known: &[&str],
    has_meaning: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let mut seen: Vec<String> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let is_valid = !part.contains(';') && part.split('=').all(|text| decode(text).is_some());
        // Go ignores a part with a semicolon: what is between them may have been meant.
        for pair in part.split(';') {
            let raw = pair.split('=').next().unwrap_or_default();
            let name = decode(raw).unwrap_or(raw.into());
            if !has_meaning(&name) {
                continue;
            }
            let why = if !known.contains(&&*name) {
                "this page has no such parameter"
            } else if !is_valid {
                "its value has a semicolon or an invalid escape"
            } else if seen.iter().any(|seen| *seen == name) {
                "it is there twice"
            } else {
                seen.push(name.into_owned());
                continue;
            };
            return Err(format!("parameter {}: {why}", quoted(&name)));
        }
    }
    Ok(())
}

/// Parses a parameter as a number, clamped to the range of the type; anything else is 0.
pub fn number(query: &str, name: &str) -> i64 {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let value = first(query, name);
    value
        .parse()
        .unwrap_or_else(|error: ParseIntError| match error.kind() {
            PosOverflow => i64::MAX,
            NegOverflow => i64::MIN,
            _ => 0,
        })
}

/// Parses decimal digits with an optional sign.
pub fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Decodes a path; `None` if an escape is broken.
pub fn path(text: &str) -> Option<Cow<'_, str>> {
    unescape(text, b'+')
}

/// Decodes a name or a value, in which plus signs are spaces.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    unescape(text, b' ')
}

/// Decodes percent escapes and replaces plus signs, and also bytes that are not UTF-8. Returns
/// `None` if an escape is broken.
fn unescape(text: &str, plus: u8) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => plus,
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
    fn a_parameter_that_would_be_ignored_is_refused_by_name() {
        let check = |query: &str| refuse_others(query, &["at", "from"], |name| name != "other");
        for query in [
            "",
            "&&",
            "at=1",
            "at=1&from=2",
            "a%74=1",
            "other=x",
            "other=%&at=1",
        ] {
            assert_eq!(check(query), Ok(()), "{query}");
        }
        for (query, why) in [
            (
                "form=1",
                "parameter \"form\": this page has no such parameter",
            ),
            (
                "at=1&AT=1",
                "parameter \"AT\": this page has no such parameter",
            ),
            ("x", "parameter \"x\": this page has no such parameter"),
            ("=1", "parameter \"\": this page has no such parameter"),
            ("at=1&at=2", "parameter \"at\": it is there twice"),
            ("at=1&%61t=2", "parameter \"at\": it is there twice"),
            (
                "at=%",
                "parameter \"at\": its value has a semicolon or an invalid escape",
            ),
            (
                "at=1;from=2",
                "parameter \"at\": its value has a semicolon or an invalid escape",
            ),
            (
                "other=1;at=2",
                "parameter \"at\": its value has a semicolon or an invalid escape",
            ),
            (
                "%zz=1",
                "parameter \"%zz\": this page has no such parameter",
            ),
            (
                "a%0d%0ab=1",
                "parameter \"a\\r\\nb\": this page has no such parameter",
            ),
        ] {
            assert_eq!(check(query), Err(why.to_owned()), "{query}");
        }
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
    fn a_path_keeps_its_plus_signs() {
        assert_eq!(path("/a+%62").as_deref(), Some("/a+b"));
        assert_eq!(path("/%fe").as_deref(), Some("/\u{fffd}"));
        assert_eq!(path("/%2"), None);
    }

    #[test]
    fn an_invalid_number_is_zero() {
        assert_eq!(number("debug=2", "debug"), 2);
        assert_eq!(number("debug=-1", "debug"), -1);
        assert_eq!(number("debug=+1", "debug"), 0, "a plus sign is a space");
        assert_eq!(number("debug=%2B1", "debug"), 1);
        assert_eq!(number("debug=99999999999999999999", "debug"), i64::MAX);
        assert_eq!(number("debug=-99999999999999999999", "debug"), i64::MIN);
        for wrong in [
            "",
            "debug",
            "debug=",
            "debug=x",
            "debug=1.5",
            "debug=0x1",
            "debug=1 ",
        ] {
            assert_eq!(number(wrong, "debug"), 0, "{wrong}");
        }
    }
}
