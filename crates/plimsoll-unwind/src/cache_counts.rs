//! How often the caches answered, by cause: the public figures that show whether walks are repeated.

use plimsoll_sys::os::thread_place;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// Lookups since the process began. All are exact, each read at its own moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Frames whose rule was cached.
    pub rules_found: u64,
    /// Frames whose rule was computed from unwind tables, or that have none.
    pub rules_missing: u64,
    /// Walks that were cached, with all words as then.
    pub walks_found: u64,
    /// Walks from a start of which none was cached.
    pub walks_missing: u64,
    /// Walks from a start of which one was cached, with other words.
    pub walks_changed: u64,
}

/// The number of stripes, a power of two. Threads that run at once mostly have different ones.
const STRIPES: usize = 16;

#[repr(align(64))]
struct Stripe([AtomicU64; 5]);

static COUNTS: [Stripe; STRIPES] = [const { Stripe([const { AtomicU64::new(0) }; 5]) }; STRIPES];

/// Reads the counts.
pub fn read() -> CacheCounts {
    let sum = |at: usize| {
        let counts = COUNTS
            .iter()
            .map(|stripe| stripe.0[at].load(Ordering::Relaxed));
        counts.sum()
    };
    CacheCounts {
        rules_found: sum(0),
        rules_missing: sum(1),
        walks_found: sum(2),
        walks_missing: sum(3),
        walks_changed: sum(4),
    }
}

fn add(at: usize, count: u64) {
    let stripe = &COUNTS[thread_place(STRIPES)];
    stripe.0[at].fetch_add(count, Ordering::Relaxed);
}

/// Counts the rules of a walk. For hooks.
#[inline]
pub(crate) fn count_rules(found: u32, missing: u32) {
    for (at, count) in [(0, found), (1, missing)] {
        if count > 0 {
            add(at, count.into());
        }
    }
}

/// How the cache of walks answered.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Found = 2,
    Missing = 3,
    Changed = 4,
}

/// Counts a lookup in the cache of walks. For hooks.
#[inline]
pub(crate) fn count_walk(answer: Answer) {
    add(answer as usize, 1);
}
