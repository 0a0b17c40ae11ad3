//! The clock that measures waits and polls: monotonic nanoseconds.

use std::time::SystemTime;

use super::native::clocks;

pub use super::native::clocks::{process_cpu, thread_cpu};

/// Returns nanoseconds since an arbitrary moment. Does not allocate or lock.
#[inline]
pub fn now() -> u64 {
    #[cfg(debug_assertions)]
    READS.set(READS.get() + 1);
    clocks::monotonic()
}

/// Does nothing: the system's clock is always used.
#[inline]
pub fn prepare() {}

/// Returns the same clock as [`now`], but does not count as one of its readings.
#[inline]
pub fn coarse() -> u64 {
    clocks::monotonic()
}

/// Returns nanoseconds since 1970, by the settable clock.
#[inline]
pub fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the reading of [`now`]: these systems do not report the time since boot in one way.
#[inline]
pub fn since_boot() -> u64 {
    clocks::monotonic()
}

/// Returns 0: the system reports no times in ticks.
#[inline]
pub fn proc_ticks_per_second() -> u64 {
    0
}

#[cfg(debug_assertions)]
thread_local! {
    static READS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns how often the calling thread has read the clock, for tests.
#[cfg(debug_assertions)]
#[inline]
pub fn reads() -> u64 {
    READS.get()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_clock_advances_as_the_standard_librarys_does() {
        let (start, began) = (now(), Instant::now());
        while began.elapsed() < Duration::from_millis(20) {
            assert!(now() >= start);
        }
        let advanced = now() - start;
        assert!(
            advanced >= 20_000_000 && advanced <= began.elapsed().as_nanos() as u64 + 1_000_000
        );
        assert!(process_cpu() >= thread_cpu() && thread_cpu() > 0);
    }
}
