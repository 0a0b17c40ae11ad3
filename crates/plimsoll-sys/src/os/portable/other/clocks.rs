//! The standard library's clock.

use std::sync::OnceLock;
use std::time::Instant;

/// Returns nanoseconds since the first call.
pub(in super::super) fn monotonic() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns 0: CPU time is not available on this system.
#[inline]
pub fn process_cpu() -> u64 {
    0
}

/// Returns 0: CPU time is not available on this system.
#[inline]
pub fn thread_cpu() -> u64 {
    0
}
