//! The settings that apply from the first allocation on.
//!
//! `PLIMSOLL=word=value,word=value`. The words read here are parsed twice: by [`early`] inside the
//! first allocation, which cannot report errors, and by `plimsoll::config`, which can.
//!
//! A process with elevated privileges reads no setting from its environment. The user who started
//! the process wrote the environment, and settings create files, replace files and serve pages.

mod memory_limit;

use std::ffi::OsString;

use plimsoll_settings::{bytes, words};
use plimsoll_sys::os::{self, privileges};

use crate::sampler;
use crate::stack::{self, Unwinder};
use plimsoll_ledger::ledger::Protocol;

pub use memory_limit::{MemoryLimit, MemoryLimitError, ResolvedLimit, resolve, share};

/// Whether this is the library that `plimsoll run` preloads, and not a part of the program.
pub const IS_PRELOADED: bool = cfg!(feature = "preload");

/// The environment variable of all settings. A preloaded library has a separate variable, because
/// the program may use Plimsoll itself.
pub const VARIABLE: &str = if IS_PRELOADED {
    "PLIMSOLL_RUN"
} else {
    "PLIMSOLL"
};

/// The environment variable with the number of filters that the command had when it started the program.
pub const FILTERS: &str = "PLIMSOLL_RUN_FILTERS";

/// Returns the number of system call filters with which this program was started, if it was by a command that stated it. For
/// hooks.
pub fn known_filters() -> Option<u32> {
    if !IS_PRELOADED {
        return None;
    }
    let stated = os::environment::variable(FILTERS);
    Some(stated.and_then(|stated| stated.parse().ok()).unwrap_or(0))
}

/// The settings that apply from the first allocation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// Mean bytes between samples: 1 for all blocks, 0 for none.
    pub heap_rate: usize,
    /// The maximum number of frames of a stack.
    pub stack_depth: usize,
    /// Bytes of the event table.
    pub table_bytes: usize,
    /// How threads count; `None` for the best that the system has.
    pub protocol: Option<Protocol>,
    /// How stacks are walked; `None` for the best that the system has.
    pub unwinder: Option<Unwinder>,
}

impl Early {
    /// The settings without the environment.
    pub const DEFAULT: Self = Self {
        heap_rate: sampler::DEFAULT_RATE,
        stack_depth: stack::DEFAULT_DEPTH,
        table_bytes: stack::DEFAULT_TABLE_BYTES,
        protocol: None,
        unwinder: None,
    };

    /// Sets the setting `word`. Returns `Ok(false)` if it is none of these settings; an error
    /// describes a wrong value.
    pub fn set(&mut self, word: &str, value: &str) -> Result<bool, &'static str> {
        match word {
            "heap_rate" => self.heap_rate = bytes(value)?.min(sampler::LARGEST_RATE),
            "stack_depth" => {
                let depth = value.parse().map_err(|_| "is not a whole number")?;
                if depth > stack::DEEPEST {
                    return Err("exceeds the maximum of 1024 frames");
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
                    _ => return Err("is not one of auto, per-cpu, per-thread, fenced"),
                }
            }
            "unwinder" => {
                self.unwinder = match value {
                    "auto" => None,
                    "frame-pointers" => Some(Unwinder::FramePointers),
                    "tables" => Some(Unwinder::Tables),
                    _ => return Err("is not one of auto, frame-pointers, tables"),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns the value of a word in the environment, the last if there are several; `None` if all is off. Called from a
/// hook: allocates nothing. The text is valid only until the variable changes: callers must use it
/// at once.
pub fn early_word(wanted: &str) -> Option<&'static str> {
    let text = environment(VARIABLE).filter(|text| !plimsoll_settings::is_off(text))?;
    let values = words(text).filter(|&(word, _)| word == wanted);
    values.filter_map(|(_, value)| value).last()
}

/// The default of the memory for the history, in bytes.
pub const DEFAULT_HISTORY_BYTES: usize = 4 << 20;

/// Parses the memory for the history, in bytes.
pub fn history_bytes(value: &str) -> Result<usize, &'static str> {
    match value {
        "off" => Ok(0),
        bytes => plimsoll_settings::bytes(bytes),
    }
}

/// Returns the memory for the history that the environment requests, in bytes, or the default. Called
/// from a hook: allocates nothing.
pub fn early_history_bytes() -> usize {
    let bytes = early_word("history").and_then(|value| history_bytes(value).ok());
    bytes.unwrap_or(DEFAULT_HISTORY_BYTES)
}

/// Returns the settings that the environment held at the first call: the preloaded library clears
/// its variable for children later.
pub fn at_start() -> Option<OsString> {
    static AT_START: std::sync::OnceLock<Option<OsString>> = std::sync::OnceLock::new();
    AT_START.get_or_init(from_environment).clone()
}

/// Returns the settings of the environment, with defaults for invalid values. Called from a hook:
/// allocates nothing.
pub fn early() -> Early {
    environment(VARIABLE).map_or(Early::DEFAULT, early_of)
}

fn early_of(text: &str) -> Early {
    let mut early = Early::DEFAULT;
    for (word, value) in words(text) {
        if let Some(value) = value {
            let before = early;
            if early.set(word, value).is_err() {
                early = before;
            }
        }
    }
    if plimsoll_settings::is_off(text) {
        early.heap_rate = 0;
    }
    early
}

/// Returns whether the environment switches everything off. Called from a hook: allocates nothing.
pub fn is_off() -> bool {
    environment(VARIABLE).is_some_and(plimsoll_settings::is_off)
}

/// Returns the text of [`VARIABLE`], UTF-8 or not; `None` if it is unset or
/// [ignored](is_ignored). Not for hooks.
pub fn from_environment() -> Option<OsString> {
    if privileges::are_elevated() {
        return None;
    }
    std::env::var_os(VARIABLE)
}

/// Returns whether [`VARIABLE`] is set and must not be obeyed. Not for hooks.
pub fn is_ignored() -> bool {
    privileges::are_elevated() && std::env::var_os(VARIABLE).is_some()
}

/// Returns a variable of the environment, if it is set, UTF-8 and may be obeyed.
fn environment(name: &str) -> Option<&'static str> {
    if privileges::are_elevated() {
        return None;
    }
    os::environment::variable(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_is_named_and_changes_nothing() {
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
        assert_eq!(early_of("heap_rate=4k,off,table=2m").heap_rate, 0);
        assert_eq!(early_of("heap_rate=4k,table=2m").heap_rate, 4096);
        assert_eq!(early.set("colour", "blue"), Ok(false));
        assert_eq!(early.set("heap_rate", "4k"), Ok(true));
        assert_eq!(early.heap_rate, 4096);
    }
}
