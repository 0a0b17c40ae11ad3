//! The system's clocks.

use super::api;
use crate::primitives::{AtomicU64, Ordering};

/// Returns nanoseconds of a clock that never goes back.
#[inline]
pub(in super::super) fn monotonic() -> u64 {
    /// Ticks per second; 0 until it is read. It never changes.
    static PER_SECOND: AtomicU64 = AtomicU64::new(0);
    let mut per_second = PER_SECOND.load(Ordering::Relaxed);
    let mut count = 0;
    // SAFETY: the places are writable; the calls cannot fail.
    unsafe {
        if per_second == 0 {
            let mut read = 0;
            api::QueryPerformanceFrequency(&raw mut read);
            per_second = read.max(1) as u64;
            PER_SECOND.store(per_second, Ordering::Relaxed);
        }
        api::QueryPerformanceCounter(&raw mut count);
    }
    (count as u128 * 1_000_000_000 / u128::from(per_second)) as u64
}

/// Returns nanoseconds of CPU time that the threads of the process have used.
pub fn process_cpu() -> u64 {
    // SAFETY: the places are writable, and the handle is valid.
    times(|[a, b, c, d]| unsafe { api::GetProcessTimes(api::THIS_PROCESS, a, b, c, d) })
}

/// Returns nanoseconds of CPU time that the calling thread has used.
pub fn thread_cpu() -> u64 {
    // SAFETY: the places are writable, and the handle is valid.
    times(|[a, b, c, d]| unsafe { api::GetThreadTimes(api::THIS_THREAD, a, b, c, d) })
}

/// Returns the sum of kernel and user time, which the system reports in units of 100 ns.
fn times(read: impl FnOnce([*mut u64; 4]) -> i32) -> u64 {
    let [mut created, mut ended, mut kernel, mut user] = [0; 4];
    let places = [
        &raw mut created,
        &raw mut ended,
        &raw mut kernel,
        &raw mut user,
    ];
    match api::keep_error(|| read(places)) {
        0 => 0,
        _ => (kernel + user) * 100,
    }
}
