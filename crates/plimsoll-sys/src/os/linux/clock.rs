//! The clock that measures waits and polls: monotonic nanoseconds.
//!
//! Each wait of a thread reads it three times, so its cost matters. If the kernel itself keeps time
//! by the processor's time stamp counter, the counter is read directly, at half the cost. The
//! kernel uses it only if the counters of all processors run at one constant speed and agree.

use std::ffi::CStr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::files;
use super::filter::{self, Calls};
use crate::arch::{self, ticks, ticks_per_second};
use crate::primitives::{AtomicU64, Ordering};

/// Returns nanoseconds since an arbitrary moment before the process began. Does not allocate, lock,
/// or change `errno`.
#[inline]
pub fn now() -> u64 {
    #[cfg(debug_assertions)]
    READS.set(READS.get() + 1);
    match RATE.load(Ordering::Acquire) {
        0 => system(),
        rate => {
            let since = ticks().wrapping_sub(START_TICKS.load(Ordering::Relaxed));
            START_NS
                .load(Ordering::Relaxed)
                .wrapping_add(((u128::from(since) * u128::from(rate)) >> RATE_BITS) as u64)
        }
    }
}

/// Nanoseconds per tick of the counter, in units of 2^-32; 0 if the system's clock is used.
static RATE: AtomicU64 = AtomicU64::new(0);

const RATE_BITS: u32 = 32;

/// A reading of both clocks at the same moment.
static START_TICKS: AtomicU64 = AtomicU64::new(0);
static START_NS: AtomicU64 = AtomicU64::new(0);

/// The least duration for which the counter is compared with the system's clock. It yields the counter's
/// speed to within some hundred-thousandths.
const COMPARED_NS: u64 = 2_000_000;

/// Determines once whether the counter is usable, and measures its speed. Sleeps for some milliseconds:
/// not for use in hooks. A concurrent second caller does not wait.
pub fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    if !filter::allows(libc::SYS_clock_nanosleep)
        || PREPARED.swap(true, Ordering::Relaxed)
        || !kernel_trusts_counter()
    {
        return;
    }
    let (now_ns, now_ticks) = both();
    let (ns, ticks, rate) = match ticks_per_second() {
        Some(frequency) => {
            let rate = (1_000_000_000 << RATE_BITS) / u128::from(frequency);
            (now_ns, now_ticks, rate)
        }
        None => measured_since(now_ns, now_ticks),
    };
    // Accepts 1 MHz to 100 GHz; no time counter has another rate.
    if (1 << RATE_BITS) / 100 < rate && rate <= 1000 << RATE_BITS {
        START_TICKS.store(ticks, Ordering::Relaxed);
        START_NS.store(ns, Ordering::Relaxed);
        RATE.store(rate as u64, Ordering::Release);
    }
}

/// Measures the counter's rate from a reading of both clocks on. Returns another reading, and the
/// rate.
fn measured_since(start_ns: u64, start_ticks: u64) -> (u64, u64, u128) {
    let (mut end_ns, mut end_ticks) = both();
    while let Some(rest) = COMPARED_NS
        .checked_sub(end_ns - start_ns)
        .filter(|&rest| rest > 0)
    {
        // The sleep uses no CPU time, and its length does not matter: both clocks are read after it.
        std::thread::sleep(Duration::from_nanos(rest));
        (end_ns, end_ticks) = both();
    }
    let ticks = end_ticks.wrapping_sub(start_ticks);
    let rate = (u128::from(end_ns - start_ns) << RATE_BITS) / u128::from(ticks.max(1));
    (end_ns, end_ticks, rate)
}

/// Reads both clocks at one moment: the fastest of several readings.
fn both() -> (u64, u64) {
    let reading = || {
        let before = ticks();
        let ns = system();
        let after = ticks();
        (after.wrapping_sub(before), ns, before)
    };
    let least = (0..5).map(|_| reading()).min();
    least.map_or((0, 0), |(took, ns, before)| {
        (ns, before.wrapping_add(took / 2))
    })
}

/// Returns the same clock with a lag of some milliseconds at most. It is accurate enough for the
/// start of a wait, at a third of the cost. Compare it only with itself.
#[inline]
pub fn coarse() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns nanoseconds since 1970, by the settable clock.
#[inline]
pub fn unix_nanos() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Returns nanoseconds since boot, including time in suspension.
#[inline]
pub fn since_boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
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

/// Returns the unit in which `/proc` reports times: ticks per second.
pub fn proc_ticks_per_second() -> u64 {
    // SAFETY: `sysconf` takes any number and writes no memory.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(0)
}

fn system() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    if filter::is_restricted() {
        return read_restricted(clock);
    }
    read_unrestricted(clock)
}

/// The clocks that the C library reads without a system call, and their values when a filter forbade the call.
static STOPPED: [(libc::clockid_t, AtomicU64); 4] = [
    (libc::CLOCK_MONOTONIC, AtomicU64::new(0)),
    (libc::CLOCK_MONOTONIC_COARSE, AtomicU64::new(0)),
    (libc::CLOCK_REALTIME, AtomicU64::new(0)),
    (libc::CLOCK_BOOTTIME, AtomicU64::new(0)),
];

/// The process's CPU time when a filter forbade to ask for it.
static STOPPED_CPU: AtomicU64 = AtomicU64::new(0);

/// Whether the clocks stand still.
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Stops the clocks if a filter that allows these calls forbids to read them: from then on, they show the present
/// time, and a thread's CPU time is 0. Call this before the filter is installed. Clocks that need no system call go
/// on, unless the process is in the strict mode of seccomp, in which the processor's counter cannot be read either.
/// Returns whether clocks were stopped, for [`go_on`].
pub fn stop_if_forbidden(allowed: &Calls, is_strict: bool) -> bool {
    if IS_STOPPED.load(Ordering::Relaxed) || allowed.contains(libc::SYS_clock_gettime) {
        return false;
    }
    STOPPED_CPU.store(process_cpu(), Ordering::Relaxed);
    if !is_strict && is_read_without_call() {
        return false;
    }
    for (clock, value) in &STOPPED {
        value.store(read(*clock), Ordering::Relaxed);
    }
    RATE.store(0, Ordering::Release);
    IS_STOPPED.store(true, Ordering::Release);
    true
}

/// Lets stopped clocks go on, because the kernel refused the filter.
pub fn go_on() {
    IS_STOPPED.store(false, Ordering::Release);
}

/// Returns whether the kernel keeps time by a counter that the C library reads itself.
fn is_read_without_call() -> bool {
    const COUNTERS: [&[u8]; 4] = [
        b"tsc",
        b"kvm-clock",
        b"hyperv_clocksource_tsc_page",
        b"arch_sys_counter",
    ];
    counter(&mut [0; 64]).is_some_and(|counter| COUNTERS.contains(&counter))
}

#[cold]
fn read_restricted(clock: libc::clockid_t) -> u64 {
    let stopped = STOPPED.iter().find(|(stopped, _)| *stopped == clock);
    match stopped {
        Some((_, value)) if IS_STOPPED.load(Ordering::Acquire) => value.load(Ordering::Relaxed),
        Some(_) => read_unrestricted(clock),
        None if filter::allows(libc::SYS_clock_gettime) => read_unrestricted(clock),
        None if clock == libc::CLOCK_PROCESS_CPUTIME_ID => STOPPED_CPU.load(Ordering::Relaxed),
        None => 0,
    }
}

fn read_unrestricted(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the struct, and cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The file with the name of the counter by which the kernel keeps time.
const SOURCE: &CStr = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn kernel_trusts_counter() -> bool {
    !arch::CLOCK_SOURCE.is_empty() && counter(&mut [0; 64]) == Some(arch::CLOCK_SOURCE.as_bytes())
}

/// Returns the name of the counter by which the kernel keeps time.
fn counter(buffer: &mut [u8]) -> Option<&[u8]> {
    files::read_into(SOURCE, buffer).map(<[u8]>::trim_ascii)
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
    use super::*;

    #[test]
    fn the_clock_agrees_with_the_system() {
        prepare();
        let difference = || now().abs_diff(system());
        // The thread may lose its processor between the two reads.
        let near = |limit| (0..1000).any(|_| difference() < limit);
        assert!(near(20_000));
        let start = system();
        while system() - start < 50_000_000 {
            std::hint::spin_loop();
        }
        assert!(near(20_000), "it drifts");
    }

    #[test]
    fn the_comparison_sleeps() {
        let pauses = || {
            let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: `usage` is writable, and zeros are a valid value.
            unsafe {
                libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
                usage.assume_init().ru_nvcsw
            }
        };
        let (start_ns, start_ticks) = both();
        let before = pauses();
        let (end_ns, _, rate) = measured_since(start_ns, start_ticks);
        assert!(end_ns - start_ns >= COMPARED_NS && rate > 0);
        // The thread gave up its processor.
        assert!(pauses() > before);
    }

    #[test]
    fn the_clock_never_goes_back() {
        prepare();
        let mut last = now();
        for _ in 0..100_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
