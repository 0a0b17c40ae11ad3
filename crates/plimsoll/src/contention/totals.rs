//! Exact sums of everything that was seen, sampled or not.

use crate::primitives::{AtomicU64, Ordering};

/// Sums since the process began. Each is exact; they are not of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Waits of any kind that were over.
    pub(crate) waits: u64,
    pub(crate) waited_ns: u64,
    /// Those of them for locks.
    pub(crate) lock_waits: u64,
    pub(crate) lock_waited_ns: u64,
    /// From having been woken to running again, of the waits that ended so.
    pub(crate) wakeup_ns: u64,
    /// Releases of locks that others waited for, and for how long.
    pub(crate) releases: u64,
    pub(crate) blamed_ns: u64,
}

/// In a cache line of its own.
#[repr(align(64))]
struct Sums {
    waits: AtomicU64,
    waited_ns: AtomicU64,
    lock_waits: AtomicU64,
    lock_waited_ns: AtomicU64,
    wakeup_ns: AtomicU64,
    releases: AtomicU64,
    blamed_ns: AtomicU64,
}

static SUMS: Sums = Sums {
    waits: AtomicU64::new(0),
    waited_ns: AtomicU64::new(0),
    lock_waits: AtomicU64::new(0),
    lock_waited_ns: AtomicU64::new(0),
    wakeup_ns: AtomicU64::new(0),
    releases: AtomicU64::new(0),
    blamed_ns: AtomicU64::new(0),
};

pub(super) fn add_wait(is_lock: bool, waited_ns: u64, wakeup_ns: u64) {
    SUMS.waits.fetch_add(1, Ordering::Relaxed);
    SUMS.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
    SUMS.wakeup_ns.fetch_add(wakeup_ns, Ordering::Relaxed);
    if is_lock {
        SUMS.lock_waits.fetch_add(1, Ordering::Relaxed);
        SUMS.lock_waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
    }
}

pub(super) fn add_release(blamed_ns: u64) {
    SUMS.releases.fetch_add(1, Ordering::Relaxed);
    SUMS.blamed_ns.fetch_add(blamed_ns, Ordering::Relaxed);
}

pub(crate) fn totals() -> Totals {
    let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
    Totals {
        waits: read(&SUMS.waits),
        waited_ns: read(&SUMS.waited_ns),
        lock_waits: read(&SUMS.lock_waits),
        lock_waited_ns: read(&SUMS.lock_waited_ns),
        wakeup_ns: read(&SUMS.wakeup_ns),
        releases: read(&SUMS.releases),
        blamed_ns: read(&SUMS.blamed_ns),
    }
}
