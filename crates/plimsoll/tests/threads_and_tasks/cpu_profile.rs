//! The CPU profile: shares, sums, labels, threads of any kind, and what it leaves alone.
//!
//! Each test runs in a separate process, because a process has one CPU profile at a time. Sums of
//! samples are compared with CPU clocks, never with elapsed time. A thread's samples differ from its
//! CPU time by at most one period in each direction; sums over many threads are given five standard
//! errors, an error probability of 6e-7.

#[cfg(target_env = "gnu")]
mod addresses;
mod kinds_of_threads;
#[cfg(feature = "http")]
mod pages;
mod processes;
mod shares;

use std::hint::black_box;

use plimsoll::profile::cpu;
use plimsoll::profile::{Detail, Snapshot};
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::{Profile, Sample};

const PERIOD: u64 = 1_000_000_000 / cpu::DEFAULT_RATE as u64;

fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the CPU time of the calling thread in nanoseconds.
fn thread_cpu() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Uses this much CPU time.
#[inline(always)]
fn burn(nanoseconds: u64) {
    let end = thread_cpu() + nanoseconds;
    while thread_cpu() < end {
        for turn in 0..1000 {
            black_box(turn);
        }
    }
}

/// Uses CPU time in a function that the tests find by its name.
#[inline(never)]
fn burns_here(nanoseconds: u64) {
    burn(nanoseconds);
    black_box(());
}

/// Records a CPU profile of `work`.
fn record(work: impl FnOnce()) -> Profile {
    cpu::start().expect("no other profile runs");
    work();
    decoded(&cpu::stop().expect("it was started"))
}

fn decoded(snapshot: &Snapshot) -> Profile {
    let mut bytes = Vec::new();
    snapshot
        .write_to(&mut bytes, Detail::Full)
        .expect("writing to memory");
    let profile = Profile::read(&bytes);
    assert_eq!(
        profile.sample_types(),
        [("samples", "count"), ("cpu", "nanoseconds")]
    );
    let period_type = profile.period_type.as_ref().expect("as in Go");
    assert_eq!(profile.text(period_type.name), "cpu");
    assert_eq!(profile.text(period_type.unit), "nanoseconds");
    for sample in &profile.sample {
        assert!(sample.value[0] > 0);
        assert_eq!(sample.value[1], sample.value[0] * profile.period);
    }
    profile
}

/// Returns the CPU time of those samples.
fn cpu_of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> u64 {
    samples
        .into_iter()
        .map(|sample| sample.value[1] as u64)
        .sum()
}

/// Returns the samples with a function of that name anywhere in the stack.
fn through<'a>(profile: &'a Profile, function: &str) -> Vec<&'a Sample> {
    let ending = format!("::{function}");
    let has = |sample: &&Sample| {
        let names = profile.names(sample);
        names.iter().any(|name| name.ends_with(&ending))
    };
    profile.sample.iter().filter(has).collect()
}

/// Repeats a recording until its samples are where they are expected. On a busy machine, the kernel may
/// send a thread its signal many periods late: then the sample stands for all of them, but elsewhere.
fn in_some_attempt(mut is_right: impl FnMut() -> bool) {
    const ATTEMPTS: usize = 50;
    assert!(
        (0..ATTEMPTS).any(|_| is_right()),
        "in no recording of {ATTEMPTS}"
    );
}

/// Asserts that the samples of `threads` threads have the CPU time that these used.
fn assert_cpu(samples: u64, used: u64, threads: u64) {
    assert!(
        is_cpu(samples, used, threads),
        "{samples} ns sampled for {used} ns"
    );
}

/// Returns whether the samples of `threads` threads have the CPU time that these used.
fn is_cpu(samples: u64, used: u64, threads: u64) -> bool {
    // The samples of a thread are its time in periods, rounded up or down.
    let error = 5.0 * 0.5 * (threads as f64).sqrt() * PERIOD as f64;
    let bound = error.max(PERIOD as f64) + used as f64 * 0.02;
    let difference = samples as f64 - used as f64;
    difference.abs() <= bound
}

#[test]
fn a_recording_without_timers_is_an_error() {
    fn test() {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // Each timer needs a place in the queue of signals.
        // SAFETY: the limit is valid for the call.
        let result = unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) };
        assert_eq!(result, 0);
        assert_eq!(cpu::start(), Err(cpu::StartError::NoTimer));
        assert_eq!(cpu::set_rate(100), Err(cpu::StartError::NoTimer));
        assert!(cpu::stop().is_none() && cpu::rate() == 0);
        let refused = cpu::StartError::NoTimer.to_string();
        assert!(refused.contains("RLIMIT_SIGPENDING"), "{refused}");
    }
    child::run("a_recording_without_timers_is_an_error", "", test);
}
