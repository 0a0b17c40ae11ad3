//! Names for addresses that a client requests.

use std::fmt::Write;

use plimsoll_symbolize::Detail;

use plimsoll_core::escape::put_name;
use plimsoll_core::stack;
use plimsoll_profiles::symbol;

/// Returns names for addresses: `pprof` requests those that a profile lacks.
pub(super) fn answer(query: &str) -> String {
    stack::refresh_modules();
    let addresses: Vec<usize> = query
        .split('+')
        .filter_map(number_in_any_base)
        .filter(|&address| address != 0)
        .collect();
    // These are addresses of code, not return addresses.
    let returns: Vec<usize> = addresses
        .iter()
        .map(|address| address.saturating_add(1))
        .collect();
    let symbols = symbol::resolve(&returns, Detail::Names);
    let mut text = String::from("num_symbols: 1\n");
    for (address, &returns) in addresses.iter().zip(&returns) {
        let lines = symbols
            .location(returns)
            .filter(|location| location.is_named)
            .map_or(&[][..], |location| symbols.lines(location));
        if let Some(&line) = lines.last() {
            let name = symbols.texts.get(symbols.function(line).name);
            write!(text, "{address:#x} ").expect("writing to a string cannot fail");
            put_name(&mut text, name).expect("writing to a string cannot fail");
            text.push('\n');
        }
    }
    text
}

/// Parses a number in C's notation: `0x` for hexadecimal, `0` for octal, `0b` for binary, else
/// decimal.
fn number_in_any_base(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let (digits, base) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (&lower[..], 10),
    };
    if digits.starts_with(['+', '-']) {
        None
    } else {
        usize::from_str_radix(digits, base).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_any_base() {
        for (text, number) in [
            ("0x1F", 31),
            ("31", 31),
            ("037", 31),
            ("0b11111", 31),
            ("0", 0),
        ] {
            assert_eq!(number_in_any_base(text), Some(number), "{text}");
        }
        for text in [
            "",
            "0x",
            "x",
            "-1",
            "+1",
            "0x-1",
            "08",
            "99999999999999999999999",
            "é",
        ] {
            assert_eq!(number_in_any_base(text), None, "{text}");
        }
    }

    #[test]
    fn symbols_are_named_and_unknown_addresses_left_out() {
        let here = number_in_any_base as *const () as usize;
        let text = answer(&format!("{here:#x}+1+0+junk+{}", usize::MAX));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("num_symbols: 1"));
        let line = lines.next().expect("one is known");
        assert!(
            line.starts_with(&format!("{here:#x} ")) && line.ends_with("number_in_any_base"),
            "{line}"
        );
        assert_eq!(lines.next(), None);
    }
}
