//! A limit on memory, which nothing watches.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use crate::gc;
use crate::notice::NOT_COMPILED_IN;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryLimit {
    #[default]
    Off,
    Bytes(u64),
    Percent(u32),
    Cgroup,
}

impl MemoryLimit {
    pub fn bytes(self) -> Result<Option<u64>, MemoryLimitError> {
        match self {
            Self::Off => Ok(None),
            Self::Bytes(bytes) => Ok(Some(bytes.min(i64::MAX as u64))),
            Self::Percent(_) => Err(MemoryLimitError::UnknownMemory),
            Self::Cgroup => Err(MemoryLimitError::NoCgroupLimit),
        }
    }

    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match (text, text.strip_suffix('%')) {
            ("off", _) => Ok(Self::Off),
            ("cgroup", _) => Ok(Self::Cgroup),
            (_, Some(share)) => match share.parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err("is not a share from 1% to 100%"),
            },
            _ => match bytes(text) {
                Some(bytes) if bytes > 0 => Ok(Self::Bytes(bytes as u64)),
                _ => Err("is not one of off, cgroup, a share such as 80%, a size such as 512m"),
            },
        }
    }
}

fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    if digits.starts_with('+') {
        return None;
    }
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryLimitError {
    NoCgroupLimit,
    UnknownMemory,
    NoThread(io::Error),
}

impl fmt::Display for MemoryLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCgroupLimit => {
                write!(
                    f,
                    "cannot read the control group's limit: {NOT_COMPILED_IN}"
                )
            }
            Self::UnknownMemory => write!(f, "cannot read the amount of memory: {NOT_COMPILED_IN}"),
            Self::NoThread(error) => {
                write!(f, "cannot create a thread for the memory limit: {error}")
            }
        }
    }
}

impl std::error::Error for MemoryLimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoThread(error) => Some(error),
            _ => None,
        }
    }
}

/// The limit in bytes that was set last; the maximum is none.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

// Collectors of the program follow it.
pub fn set_memory_limit(limit: MemoryLimit) -> Result<Option<u64>, MemoryLimitError> {
    let bytes = limit.bytes()?.unwrap_or(u64::MAX);
    gc::set_memory_limit(bytes);
    let before = LIMIT.swap(bytes, Ordering::Relaxed);
    Ok((before != u64::MAX).then_some(before))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPressure {
    pub limit: u64,
    pub used: u64,
    pub percent: u32,
}

type Callback = Box<dyn Fn(&MemoryPressure) + Send + Sync>;

// Keeps what the callback captured for as long as if it could be called.
#[must_use = "dropping it ends the callback"]
pub struct MemoryThreshold {
    _callback: AssertUnwindSafe<Callback>,
}

impl fmt::Debug for MemoryThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryThreshold").finish_non_exhaustive()
    }
}

#[inline]
pub fn on_memory_threshold(
    _percent: u32,
    callback: impl Fn(&MemoryPressure) + Send + Sync + 'static,
) -> MemoryThreshold {
    MemoryThreshold {
        _callback: AssertUnwindSafe(Box::new(callback)),
    }
}
