//! Sums over all events, sampled or not.

use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// Sums since the process began. They are not read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Waits of any kind that have ended.
    pub waits: u64,
    /// Their durations, in nanoseconds.
    pub waited_ns: u64,
    /// Waits for locks, a part of those.
    pub lock_waits: u64,
    /// Their durations, in nanoseconds.
    pub lock_waited_ns: u64,
    /// Wake-up latency: the time from the wake-up until the thread ran again, of waits that ended
    /// with a wake-up.
    pub wakeup_ns: u64,
    /// Releases of locks for which others waited.
    pub releases: u64,
    /// The time that these let others wait, in nanoseconds.
    pub blamed_ns: u64,
    /// Estimated time of lock waits while nothing was recorded.
    pub lock_waited_estimate_ns: u64,
}

/// One part of the sums. Threads add to different stripes, so that they do not contend for cache
/// lines.
#[repr(align(64))]
struct Stripe([AtomicU64; SUMS]);

const STRIPES: usize = 16;

static STRIPES_OF_ALL: [Stripe; STRIPES] =
    [const { Stripe([const { AtomicU64::new(0) }; SUMS]) }; STRIPES];

const SUMS: usize = 8;

/// Indices of the sums in a stripe.
mod sum {
    pub(super) const WAITS: usize = 0;
    pub(super) const WAITED: usize = 1;
    pub(super) const LOCK_WAITS: usize = 2;
    pub(super) const LOCK_WAITED: usize = 3;
    pub(super) const WAKEUP: usize = 4;
    pub(super) const RELEASES: usize = 5;
    pub(super) const BLAMED: usize = 6;
    pub(super) const ESTIMATED: usize = 7;
}

/// Returns the calling thread's stripe.
fn stripe() -> &'static Stripe {
    &STRIPES_OF_ALL[plimsoll_sys::os::thread_place(STRIPES)]
}

impl Stripe {
    fn add(&self, sum: usize, amount: u64) {
        self.0[sum].fetch_add(amount, Ordering::Relaxed);
    }
}

pub(super) fn add_wait(is_lock: bool, waited_ns: u64, wakeup_ns: u64) {
    let stripe = stripe();
    let (waits, waited) = if is_lock {
        (sum::LOCK_WAITS, sum::LOCK_WAITED)
    } else {
        (sum::WAITS, sum::WAITED)
    };
    stripe.add(waits, 1);
    stripe.add(waited, waited_ns);
    stripe.add(sum::WAKEUP, wakeup_ns);
}

pub(super) fn add_release(blamed_ns: u64) {
    let stripe = stripe();
    stripe.add(sum::RELEASES, 1);
    stripe.add(sum::BLAMED, blamed_ns);
}

pub(super) fn add_estimated(waited_ns: u64) {
    stripe().add(sum::ESTIMATED, waited_ns);
}

/// Returns the sums.
pub fn totals() -> Totals {
    let read = |sum: usize| -> u64 {
        let stripes = STRIPES_OF_ALL.iter();
        stripes.fold(0, |total, stripe| {
            total.wrapping_add(stripe.0[sum].load(Ordering::Relaxed))
        })
    };
    let (lock_waits, lock_waited_ns) = (read(sum::LOCK_WAITS), read(sum::LOCK_WAITED));
    Totals {
        waits: read(sum::WAITS) + lock_waits,
        waited_ns: read(sum::WAITED) + lock_waited_ns,
        lock_waits,
        lock_waited_ns,
        wakeup_ns: read(sum::WAKEUP),
        releases: read(sum::RELEASES),
        blamed_ns: read(sum::BLAMED),
        lock_waited_estimate_ns: read(sum::ESTIMATED),
    }
}
