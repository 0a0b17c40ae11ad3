//! What the program wants of its collectors: Go's `GOGC` and `GOMEMLIMIT`. It is up to them to
//! follow.

use crate::primitives::{AtomicI32, AtomicU64, Ordering};

/// How much more than what is live a heap may become before it is collected, in per cent, unless it
/// is set: as much again.
pub const DEFAULT_PERCENT: i32 = 100;

static PERCENT: AtomicI32 = AtomicI32::new(DEFAULT_PERCENT);
static MEMORY_LIMIT: AtomicU64 = AtomicU64::new(NO_LIMIT);

/// What Go has for none.
const NO_LIMIT: u64 = i64::MAX as u64;

/// How much more than what is live a heap may become before it is collected, in per cent; negative
/// if collectors are not to begin cycles by themselves.
pub fn percent() -> i32 {
    PERCENT.load(Ordering::Relaxed)
}

/// Sets [`percent`] and returns what it was. Go's `debug.SetGCPercent`.
pub fn set_percent(percent: i32) -> i32 {
    PERCENT.swap(percent, Ordering::Relaxed)
}

/// How much memory collectors should keep the program below, in bytes; `i64::MAX` for no limit.
pub fn memory_limit() -> u64 {
    MEMORY_LIMIT.load(Ordering::Relaxed)
}

/// Sets [`memory_limit`], at most `i64::MAX`, and returns what it was. Go's `debug.SetMemoryLimit`.
pub fn set_memory_limit(bytes: u64) -> u64 {
    MEMORY_LIMIT.swap(bytes.min(NO_LIMIT), Ordering::Relaxed)
}
