//! The rates of block and mutex profiles, and the weights of recorded events.
//!
//! Whether an event is recorded is decided at its end, before its stack is walked. An event that is
//! not recorded therefore costs no more than the decision. A recorded event carries the weight of
//! the rate that was in force, so a change of rate does not affect earlier events.

use std::cell::Cell;

use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

use plimsoll_core::fork::Order;
use plimsoll_tasks::recording;

/// Nanoseconds of waiting per sample of the block profile; 0 for no samples.
static BLOCK_RATE: AtomicU64 = AtomicU64::new(0);

/// One in this many releases is in the mutex profile; 0 for none.
static MUTEX_FRACTION: AtomicU32 = AtomicU32::new(0);

/// Held while rates are changed, so that [`recording::is_on`] agrees with the last change.
static CHANGING: ForkLock<()> = ForkLock::new(Order::Rates.rank(), ());

/// Returns the block rate in nanoseconds; 0 if no waits are recorded.
pub fn block_rate() -> u64 {
    BLOCK_RATE.load(Ordering::Relaxed)
}

/// Returns the mutex fraction: one in this many releases is recorded; 0 for none.
pub fn mutex_fraction() -> u32 {
    MUTEX_FRACTION.load(Ordering::Relaxed)
}

/// The longest block rate in nanoseconds, about 37 minutes; longer ones are reduced to it. The
/// count of one sample then is at most 2^57.
pub const LARGEST_BLOCK_RATE: u64 = 1 << 41;

/// Sets the block rate in nanoseconds, and returns the previous one.
pub fn set_block_rate(nanoseconds: u64) -> u64 {
    change(|| BLOCK_RATE.swap(nanoseconds.min(LARGEST_BLOCK_RATE), Ordering::Relaxed))
}

/// Sets the mutex fraction, and returns the previous one.
pub fn set_mutex_fraction(fraction: u32) -> u32 {
    change(|| MUTEX_FRACTION.swap(fraction, Ordering::Relaxed))
}

/// Keeps the rates unchanged until the guard is dropped.
fn lock() -> ForkGuard<()> {
    CHANGING.lock()
}

fn change<T>(set: impl FnOnce() -> T) -> T {
    let _alone = lock();
    clock::prepare();
    let before = set();
    recording::set_on(block_rate() != 0 || mutex_fraction() != 0);
    before
}

/// The number of fractional bits of a count in a profile.
pub const COUNT_BITS: u32 = 16;

/// The weight of a recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weighted {
    /// Estimated events, in units of 2^-16.
    pub(super) count: u64,
    /// Estimated nanoseconds.
    pub(super) delay: u64,
}

/// Decides whether to record a wait of `delay` nanoseconds, at a rate of one sample per `rate`
/// nanoseconds. Waits of at least `rate` are all recorded. A shorter wait is recorded with
/// probability `delay / rate`, and then stands for `rate / delay` waits of its length.
pub(super) fn sample_wait(delay: u64, rate: u64, random: impl FnOnce() -> u64) -> Option<Weighted> {
    // As in Go, a wait lasts at least a nanosecond.
    let delay = delay.max(1);
    if rate == 0 {
        None
    } else if delay >= rate {
        Some(Weighted {
            count: 1 << COUNT_BITS,
            delay,
        })
    } else if below(rate, random()) < delay {
        Some(Weighted {
            count: ((u128::from(rate) << COUNT_BITS) / u128::from(delay)) as u64,
            delay: rate,
        })
    } else {
        None
    }
}

/// Decides whether to record a release for which others waited `delay` nanoseconds.
pub(super) fn sample_release(
    delay: u64,
    fraction: u32,
    random: impl FnOnce() -> u64,
) -> Option<Weighted> {
    let fraction = u64::from(fraction);
    (fraction == 1 || (fraction > 1 && below(fraction, random()) == 0)).then(|| Weighted {
        count: fraction << COUNT_BITS,
        delay: delay.saturating_mul(fraction),
    })
}

/// Returns a number below `limit`, uniform up to 2^-64 of it.
fn below(limit: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Begins the calling thread's random numbers anew. In the child of a fork, whose choices must differ
/// from those of its parent and of other children.
#[cfg(not(loom))]
pub(super) fn begin_anew() {
    RANDOM.set(0);
}

/// Returns the calling thread's next random number (splitmix64).
pub(super) fn random() -> u64 {
    RANDOM.with(|random| {
        let mut state = random.get();
        if state == 0 {
            state = plimsoll_sys::os::random::seed();
        }
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        random.set(state);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate random stream, so that tests have fixed seeds.
    struct Stream(u64);

    impl Stream {
        fn next(&mut self) -> u64 {
            RANDOM.with(|random| {
                let kept = random.replace(self.0);
                let next = super::random();
                self.0 = random.replace(kept);
                next
            })
        }
    }

    /// Formula F4, without Go's bias of one in `delay`. For waits around the rate, the estimates of
    /// their number and of their sum are within five standard errors.
    #[test]
    fn block_estimates_are_within_five_sigma() {
        let mut stream = Stream(20_261_121);
        const EVENTS: u64 = 400_000;
        for rate in [2, 10, 1000, 100_000] {
            for delay in [1, rate / 10, rate / 2, rate - 1, rate, rate + 1, 10 * rate] {
                let delay = delay.max(1);
                let (mut count, mut sum) = (0f64, 0f64);
                for _ in 0..EVENTS {
                    if let Some(taken) = sample_wait(delay, rate, || stream.next()) {
                        count += taken.count as f64 / f64::from(1 << COUNT_BITS);
                        sum += taken.delay as f64;
                    }
                }
                let p = (delay as f64 / rate as f64).min(1.0);
                // The relative variance of an estimate of N events is (1 - p) / (p N).
                let sigma = ((1.0 - p) / (p * EVENTS as f64)).sqrt();
                for (estimate, exact) in
                    [(count, EVENTS as f64), (sum, EVENTS as f64 * delay as f64)]
                {
                    let error = (estimate / exact - 1.0).abs();
                    // A weight is rounded down to 2^-16.
                    assert!(
                        error <= 5.0 * sigma + 2e-5,
                        "{estimate} for {exact}, waits of {delay} at {rate}"
                    );
                }
            }
        }
    }

    /// Formula F5.
    #[test]
    fn mutex_estimates_are_within_five_sigma() {
        let mut stream = Stream(7);
        const EVENTS: u64 = 400_000;
        for fraction in [1, 2, 5, 100, 10_000] {
            let (mut count, mut sum) = (0, 0);
            for _ in 0..EVENTS {
                if let Some(taken) = sample_release(123, fraction, || stream.next()) {
                    count += taken.count >> COUNT_BITS;
                    sum += taken.delay;
                }
            }
            assert_eq!(sum, count * 123);
            let p = 1.0 / f64::from(fraction);
            let sigma = ((1.0 - p) / (p * EVENTS as f64)).sqrt();
            let error = (count as f64 / EVENTS as f64 - 1.0).abs();
            assert!(error <= 5.0 * sigma, "{count} for {EVENTS} at {fraction}");
        }
    }

    #[test]
    fn rate_zero_takes_no_events_and_rate_one_takes_all() {
        let never = || -> u64 { panic!("no dice are thrown") };
        assert_eq!(sample_wait(1_000_000, 0, never), None);
        assert_eq!(sample_release(1_000_000, 0, never), None);
        for delay in [0, 1, 17, u64::MAX >> 8] {
            let all = Weighted {
                count: 1 << COUNT_BITS,
                delay: delay.max(1),
            };
            assert_eq!(sample_wait(delay, 1, never), Some(all));
            let all = Weighted { delay, ..all };
            assert_eq!(sample_release(delay, 1, never), Some(all));
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for random in [0, u64::MAX] {
            let wait = sample_wait(1, LARGEST_BLOCK_RATE, || random);
            assert_eq!(wait.is_some(), random == 0);
            let release = sample_release(u64::MAX, u32::MAX, || random);
            assert_eq!(release.is_some(), random == 0);
        }
    }
}
