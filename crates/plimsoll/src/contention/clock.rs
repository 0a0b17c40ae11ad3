//! The clock that waits are measured with.

/// Nanoseconds since some moment before the process began: monotonic, and not set back by anybody.
/// Neither allocates nor locks nor touches `errno`.
pub(super) fn now() -> u64 {
    #[cfg(test)]
    READS.set(READS.get() + 1);
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the struct; with this clock it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
thread_local! {
    static READS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How often the calling thread has read the clock.
#[cfg(test)]
pub(crate) fn reads() -> u64 {
    READS.get()
}
