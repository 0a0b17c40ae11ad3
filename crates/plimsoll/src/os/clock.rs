//! The clock that waits and polls are measured with: monotonic nanoseconds.
//!
//! It is read three times for each wait of a thread, so it matters what that takes. Where the
//! kernel itself keeps time by the processor's time stamp counter, which it does only if the
//! counters of all processors run at one constant speed and agree, that is read directly, at half
//! the price.

use std::sync::atomic::AtomicBool;

use crate::primitives::{AtomicU64, Ordering};

/// Nanoseconds since some moment before the process began. Neither allocates nor locks nor touches
/// `errno`.
#[inline]
pub(crate) fn now() -> u64 {
    #[cfg(test)]
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

/// Nanoseconds in a tick of the counter, in units of 2^-32; 0 if the system is asked.
static RATE: AtomicU64 = AtomicU64::new(0);

const RATE_BITS: u32 = 32;

/// A moment, on both clocks.
static START_TICKS: AtomicU64 = AtomicU64::new(0);
static START_NS: AtomicU64 = AtomicU64::new(0);

/// For how long the counter is compared with the system's clock: its speed is then known to some
/// hundred-thousandths.
const COMPARED_NS: u64 = 2_000_000;

/// Finds out, once, whether there is a counter, and how fast it is. Takes some milliseconds: not
/// for hooks. Who comes second does not wait.
pub(crate) fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    if PREPARED.swap(true, Ordering::Relaxed) || !kernel_trusts_counter() {
        return;
    }
    let (start_ns, start_ticks) = both();
    let (mut end_ns, mut end_ticks) = both();
    while end_ns - start_ns < COMPARED_NS {
        (end_ns, end_ticks) = both();
    }
    let ticks = end_ticks.wrapping_sub(start_ticks);
    let rate = (u128::from(end_ns - start_ns) << RATE_BITS) / u128::from(ticks.max(1));
    // From 10 MHz to 100 GHz; anything else is no counter of time.
    if (1 << RATE_BITS) / 100 < rate && rate < 100 << RATE_BITS {
        START_TICKS.store(end_ticks, Ordering::Relaxed);
        START_NS.store(end_ns, Ordering::Relaxed);
        RATE.store(rate as u64, Ordering::Release);
    }
}

/// Both clocks at one moment: of several readings, the one that took the least time.
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

/// The same clock, by which it is at most some milliseconds earlier than it is: since when somebody
/// has waited is known well enough by that, at a third of the price. Only to be compared with
/// itself.
#[inline]
pub(crate) fn coarse() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds since 1970, by the clock that may be set.
pub(crate) fn unix_nanos() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Nanoseconds since the machine was started, with those in which it slept.
pub(crate) fn since_boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds of processor time that the threads of the process have used.
pub(crate) fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Nanoseconds of processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn system() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the struct; with these clocks it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn kernel_trusts_counter() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read(SOURCE).is_ok_and(|source| source.trim_ascii() == b"tsc")
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
fn kernel_trusts_counter() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: all processors of that architecture have the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
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

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare_alone() {
        let _alone = crate::contention::lock_rates();
        prepare();
    }

    #[test]
    fn it_agrees_with_the_system() {
        prepare_alone();
        let difference = || now().abs_diff(system());
        // The thread may lose its processor between the two.
        let near = |limit| (0..1000).any(|_| difference() < limit);
        assert!(near(20_000));
        let start = system();
        while system() - start < 50_000_000 {
            std::hint::spin_loop();
        }
        assert!(near(20_000), "it drifts");
    }

    #[test]
    fn it_never_goes_back() {
        prepare_alone();
        let mut last = now();
        for _ in 0..100_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
