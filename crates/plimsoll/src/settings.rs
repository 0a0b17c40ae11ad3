//! The one grammar of settings, and those that hold from the first allocation on.
//!
//! `PLIMSOLL=word=value,word=value`. The words read here are looked at twice: by [`early`] from
//! inside the first allocation, which cannot complain, and by [`mod@crate::config`], which can.
//!
//! A process with elevated privileges reads no setting from its environment: the user that started
//! the process wrote the environment, and settings create files, replace files and serve pages.

use std::ffi::OsString;

use crate::ledger::Protocol;
use crate::os::privileges;
use crate::sampler;
use crate::stack::{self, Unwinder};

/// The environment variable that all settings come from. A library that is preloaded has one of its
/// own: the program may use Plimsoll itself.
pub(crate) const VARIABLE: &str = if cfg!(feature = "preload") {
    "PLIMSOLL_RUN"
} else {
    "PLIMSOLL"
};

/// What holds from the first allocation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Early {
    pub(crate) heap_rate: usize,
    pub(crate) stack_depth: usize,
    pub(crate) table_bytes: usize,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) unwinder: Option<Unwinder>,
}

impl Early {
    pub(crate) const DEFAULT: Self = Self {
        heap_rate: sampler::DEFAULT_RATE,
        stack_depth: stack::DEFAULT_DEPTH,
        table_bytes: stack::DEFAULT_TABLE_BYTES,
        protocol: None,
        unwinder: None,
    };

    /// Sets what `word` names. `Ok(false)` if it names nothing here; an error says what is wrong
    /// with the value.
    pub(crate) fn set(&mut self, word: &str, value: &str) -> Result<bool, &'static str> {
        match word {
            "heap_rate" => self.heap_rate = bytes(value)?.min(sampler::LARGEST_RATE),
            "stack_depth" => {
                let depth = value.parse().map_err(|_| "is not a whole number")?;
                if depth > stack::DEEPEST {
                    return Err("is more than the 1024 frames that can be kept");
                }
                self.stack_depth = depth;
            }
            "table" => {
                self.table_bytes = bytes(value)?;
                if self.table_bytes < stack::SMALLEST_TABLE_BYTES {
                    return Err("is less than 1m");
                }
            }
            "ledger" => {
                self.protocol = match value {
                    "auto" => None,
                    "per-cpu" => Some(Protocol::PerCpu),
                    "per-thread" => Some(Protocol::PerThread),
                    "fenced" => Some(Protocol::Fenced),
                    _ => return Err("is none of auto, per-cpu, per-thread, fenced"),
                }
            }
            "unwinder" => {
                self.unwinder = match value {
                    "auto" => None,
                    "frame-pointers" => Some(Unwinder::FramePointers),
                    "tables" => Some(Unwinder::Tables),
                    _ => return Err("is none of auto, frame-pointers, tables"),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The value of a word, the last if there are several, as the environment has it. Called from a
/// hook: allocates nothing. The text stays until the variable is set anew: it is to be used up at
/// once.
pub(crate) fn early_word(wanted: &str) -> Option<&'static str> {
    let values = words(environment(VARIABLE)?).filter(|&(word, _)| word == wanted);
    values.filter_map(|(_, value)| value).last()
}

/// The words of a setting, in order: each with its value, or without if there is no `=`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once('=') {
            Some((word, value)) => (word.trim(), Some(value.trim())),
            None => (word, None),
        })
}

/// For the command, which checks what it hands on.
#[cfg(feature = "offline")]
pub mod grammar {
    /// A number of bytes, or what is wrong with it.
    pub fn bytes(value: &str) -> Result<usize, &'static str> {
        super::bytes(value)
    }

    /// A length of time in nanoseconds, or what is wrong with it.
    pub fn nanoseconds(value: &str) -> Result<u64, &'static str> {
        super::nanoseconds(value)
    }

    /// A limit on memory, or what is wrong with it.
    pub fn memory_limit(value: &str) -> Result<crate::MemoryLimit, &'static str> {
        crate::MemoryLimit::parse(value)
    }
}

/// A number of bytes: digits, then nothing, `k`, `m` or `g` for powers of 1024.
pub(crate) fn bytes(value: &str) -> Result<usize, &'static str> {
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
    number
        .checked_mul(1 << shift)
        .ok_or("is more bytes than there can be")
}

/// A length of time in nanoseconds: digits, then `ns`, `us`, `ms` or `s`; nothing after 0.
pub(crate) fn nanoseconds(value: &str) -> Result<u64, &'static str> {
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
    number
        .checked_mul(factor)
        .ok_or("is more nanoseconds than there can be")
}

/// What the environment says, as far as it can be understood. Called from a hook: allocates
/// nothing, and what is wrong is left at its default.
pub(crate) fn early() -> Early {
    let mut early = Early::DEFAULT;
    let Some(text) = environment(VARIABLE) else {
        return early;
    };
    for (word, value) in words(text) {
        if let Some(value) = value {
            let before = early;
            if early.set(word, value).is_err() {
                early = before;
            }
        }
    }
    early
}

/// Returns the text of [`VARIABLE`], UTF-8 or not; `None` if it is unset or
/// [ignored](is_ignored). Not for hooks.
pub(crate) fn from_environment() -> Option<OsString> {
    if privileges::are_elevated() {
        return None;
    }
    std::env::var_os(VARIABLE)
}

/// Returns whether [`VARIABLE`] is set and must not be obeyed. Not for hooks.
pub(crate) fn is_ignored() -> bool {
    privileges::are_elevated() && std::env::var_os(VARIABLE).is_some()
}

/// Returns a variable of the environment, if it is set, UTF-8 and may be obeyed.
fn environment(name: &str) -> Option<&'static str> {
    if privileges::are_elevated() {
        return None;
    }
    unsafe extern "C" {
        static environ: *const *const std::ffi::c_char;
    }
    // SAFETY: a list of strings up to a null. Like every reader of the environment, this must not
    // meet a writer, and at the first allocation there is hardly a second thread. The text stays
    // where it is unless the variable is set anew, and is used up at once. Not by `getenv`: some
    // programs have a function of that name, which allocates.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let entry = std::ffi::CStr::from_ptr(*at).to_bytes();
            let value = entry.strip_prefix(name.as_bytes());
            if let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) {
                return std::str::from_utf8(value).ok();
            }
            at = at.add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            bytes("99999999999g"),
            Err("is more bytes than there can be")
        );
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
        assert_eq!(
            nanoseconds("18446744074s"),
            Err("is more nanoseconds than there can be")
        );
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
    fn a_bad_value_names_what_is_wrong_and_changes_nothing() {
        let mut early = Early::DEFAULT;
        assert!(early.set("heap_rate", "often").is_err());
        assert!(early.set("stack_depth", "1025").is_err());
        assert!(early.set("table", "1k").is_err());
        assert!(early.set("ledger", "none").is_err());
        assert!(early.set("unwinder", "libgcc").is_err());
        assert_eq!(
            early,
            Early {
                table_bytes: early.table_bytes,
                ..Early::DEFAULT
            }
        );
        assert_eq!(early.set("colour", "blue"), Ok(false));
        assert_eq!(early.set("heap_rate", "4k"), Ok(true));
        assert_eq!(early.heap_rate, 4096);
    }
}
