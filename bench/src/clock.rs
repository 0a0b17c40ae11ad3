//! Clocks in nanoseconds, and the processor's time stamp counter.

/// Returns the CPU time of the whole process.
pub fn process() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time of another process. Panics if it does not exist.
pub fn of_process(id: u32) -> u64 {
    let mut clock = 0;
    // SAFETY: the variable is valid for writes.
    let failed = unsafe { libc::clock_getcpuclockid(id as libc::pid_t, &raw mut clock) };
    assert_eq!(failed, 0, "the process exists");
    read(clock)
}

/// Returns the CPU time of the calling thread.
pub fn thread() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of all children that have ended.
pub fn children() -> u64 {
    let usage = usage(libc::RUSAGE_CHILDREN);
    let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    (microseconds(usage.ru_utime) + microseconds(usage.ru_stime)) * 1000
}

/// Returns what the process, the thread or the children (`RUSAGE_*`) have used.
pub fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: all zeros is a valid `rusage`, which the call fills.
    unsafe {
        let mut usage = std::mem::zeroed();
        let failed = libc::getrusage(who, &raw mut usage);
        assert_eq!(failed, 0, "the usage can be read");
        usage
    }
}

/// Returns the elapsed time.
pub fn wall() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the processor's time stamp counter, or the elapsed time if there is none.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: all x86-64 processors have the counter.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    wall()
}

/// Returns the number of [`ticks`] per microsecond, measured over 20 milliseconds.
pub fn ticks_per_microsecond() -> f64 {
    let (start, first) = (wall(), ticks());
    let mut now = start;
    while now - start < 20_000_000 {
        now = wall();
    }
    (ticks() - first) as f64 * 1000.0 / (now - start) as f64
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid for writes.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(failed, 0, "the clock can be read");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
