//! The grammar of Plimsoll's settings: `word=value,word=value`, and the values that several
//! settings use.
//!
//! An error is the predicate of a sentence whose subject is the value, such as `is not a number of
//! bytes`. Nothing allocates: the library parses its environment inside the first allocation.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

mod table;

pub use table::{Setting, all, has};

/// Returns the words of a setting in order, each with its value. The value of a word without `=` is
/// `None`.
pub fn words(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once('=') {
            Some((word, value)) => (word.trim(), Some(value.trim())),
            None => (word, None),
        })
}

/// Returns whether a setting has the word that switches everything off: `off`, without a value.
pub fn is_off(text: &str) -> bool {
    words(text).any(|word| word == (OFF, None))
}

/// The word that switches everything off.
pub const OFF: &str = "off";

/// Parses a number of bytes: digits, then nothing, `k`, `m` or `g` for powers of 1024.
///
/// # Errors
/// The value is not a number of bytes, or it exceeds `usize`.
pub fn bytes(value: &str) -> Result<usize, &'static str> {
    const WRONG: &str = "is not a number of bytes such as 4096, 512k, 64m or 1g";
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(WRONG);
    }
    let number: usize = digits.parse().map_err(|_| WRONG)?;
    number.checked_mul(1 << shift).ok_or("is too large")
}

/// Parses a duration in nanoseconds: digits, then `ns`, `us`, `ms` or `s`; nothing after 0.
///
/// # Errors
/// The value is not a duration, or it exceeds `u64` nanoseconds.
pub fn nanoseconds(value: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "is not a length of time such as 0, 500ns, 10us, 1ms or 2s";
    let unit = value.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let number: u64 = value[..value.len() - unit.len()]
        .parse()
        .map_err(|_| WRONG)?;
    let factor = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == 0 => 1,
        _ => return Err(WRONG),
    };
    number.checked_mul(factor).ok_or("is too long")
}

/// A memory limit as it stands in a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// `off`
    Off,
    /// A size such as `512m`, in bytes.
    Bytes(u64),
    /// A share such as `80%`, 1 to 100.
    Percent(u32),
    /// `cgroup`
    Cgroup,
}

/// Parses a memory limit: `off`, `cgroup`, a share such as `80%`, or a size such as `512m`.
///
/// # Errors
/// The value has none of these forms.
pub fn memory_limit(text: &str) -> Result<MemoryLimit, &'static str> {
    const WRONG: &str = "is not one of off, cgroup, a share such as 80%, a size such as 512m";
    match (text, text.strip_suffix('%')) {
        ("off", _) => Ok(MemoryLimit::Off),
        ("cgroup", _) => Ok(MemoryLimit::Cgroup),
        (_, Some(share)) => match share.parse() {
            Ok(percent @ 1..=100) => Ok(MemoryLimit::Percent(percent)),
            _ => Err("is not a share from 1% to 100%"),
        },
        _ => match bytes(text) {
            Ok(bytes) if bytes > 0 => Ok(MemoryLimit::Bytes(bytes as u64)),
            _ => Err(WRONG),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bare_word_switches_everything_off() {
        assert!(is_off("off") && is_off("heap_rate=1, off ,http=1"));
        for text in ["", "history=off", "off=1", "off=", "of", "OFF", "offer"] {
            assert!(!is_off(text), "{text}");
        }
    }

    #[test]
    fn sizes_have_suffixes_and_limits() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("512k"), Ok(512 << 10));
        assert_eq!(bytes("64M"), Ok(64 << 20));
        assert_eq!(bytes("3g"), Ok(3 << 30));
        for wrong in [
            "",
            "k",
            "-1",
            "+1",
            "1.5m",
            "1kk",
            "1 k",
            "0x10",
            "99999999999999999999",
            "é",
            "1é",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("99999999999g"), Err("is too large"));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(nanoseconds("0"), Ok(0));
        assert_eq!(nanoseconds("500ns"), Ok(500));
        assert_eq!(nanoseconds("10us"), Ok(10_000));
        assert_eq!(nanoseconds("10µs"), Ok(10_000));
        assert_eq!(nanoseconds("1ms"), Ok(1_000_000));
        assert_eq!(nanoseconds("2s"), Ok(2_000_000_000));
        for wrong in [
            "",
            "1",
            "ms",
            "-1ms",
            "1.5ms",
            "1 ms",
            "1m",
            "1h",
            "99999999999999999999s",
        ] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(nanoseconds("18446744074s"), Err("is too long"));
    }

    #[test]
    fn words_are_separated_by_commas_and_trimmed() {
        let parsed: Vec<_> = words(" a=1, b = 2 ,,c, =d,").collect();
        assert_eq!(
            parsed,
            [
                ("a", Some("1")),
                ("b", Some("2")),
                ("c", None),
                ("", Some("d"))
            ]
        );
    }

    #[test]
    fn a_memory_limit_is_a_word_a_share_or_a_size() {
        let right = [
            ("off", MemoryLimit::Off),
            ("cgroup", MemoryLimit::Cgroup),
            ("80%", MemoryLimit::Percent(80)),
            ("512m", MemoryLimit::Bytes(512 << 20)),
        ];
        for (text, limit) in right {
            assert_eq!(memory_limit(text), Ok(limit));
        }
        for wrong in ["", "%", "0%", "101%", "-1%", "0", "x", "80 %", "none"] {
            assert!(memory_limit(wrong).is_err(), "{wrong}");
        }
    }
}
