//! Processor time, in nanoseconds.

/// Of the whole process.
pub fn process() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Of the calling thread.
pub fn thread() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Of the wall.
pub fn wall() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills a valid struct.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(failed, 0, "the clock can be read");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
