//! The program's targets for its collectors: Go's `GOGC` and `GOMEMLIMIT`. The collectors decide
//! whether to follow them.

use plimsoll_sys::primitives::{AtomicI32, AtomicU64, Ordering};

/// The default of [`percent`]: a heap may double before it is collected.
pub const DEFAULT_PERCENT: i32 = 100;

static PERCENT: AtomicI32 = AtomicI32::new(DEFAULT_PERCENT);
static MEMORY_LIMIT: AtomicU64 = AtomicU64::new(NO_LIMIT);

/// The limit that stands for none, as in Go.
const NO_LIMIT: u64 = i64::MAX as u64;

/// Returns how much a heap may grow above its live size before it is collected, in per cent of that
/// size. Negative if collectors should not begin cycles on their own.
pub fn percent() -> i32 {
    PERCENT.load(Ordering::Relaxed)
}

/// Sets [`percent`] and returns the previous value. Go's `debug.SetGCPercent`.
pub fn set_percent(percent: i32) -> i32 {
    PERCENT.swap(percent, Ordering::Relaxed)
}

/// Returns the memory size below which collectors should keep the program, in bytes; `i64::MAX` for
/// no limit.
pub fn memory_limit() -> u64 {
    MEMORY_LIMIT.load(Ordering::Relaxed)
}

/// Sets [`memory_limit`], at most `i64::MAX`, and returns the previous value. Go's
/// `debug.SetMemoryLimit`.
pub fn set_memory_limit(bytes: u64) -> u64 {
    MEMORY_LIMIT.swap(bytes.min(NO_LIMIT), Ordering::Relaxed)
}
