//! The clocks of POSIX.

use super::errno;

/// Returns nanoseconds of a clock that never goes back.
#[inline]
pub(in super::super) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns nanoseconds of CPU time that the threads of the process have used.
#[inline]
pub fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns nanoseconds of CPU time that the calling thread has used.
#[inline]
pub fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the struct; after a failure, it is zero.
    errno::keep(|| unsafe { libc::clock_gettime(clock, &raw mut time) });
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
