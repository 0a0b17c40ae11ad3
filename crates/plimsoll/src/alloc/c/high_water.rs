//! The most that was in use.
//!
//! The counts are not summed up until somebody reads them, so it is not seen when they are highest.
//! They are read now and then by whoever makes a sampled allocation: after each MiB that was
//! allocated, or 1/64 of what was in use, whichever is more, as the samples say. So the figure may
//! be too small by as much as was allocated at the peak between two readings, which is left to
//! chance: mostly as much as that, and hardly ever several times as much. It is never too large.
//! Where readers would wait for whoever is counting, it is taken from the samples.

use crate::alloc::counts::{HEAP, HeapDelta};
use crate::ledger::Protocol;
use crate::primitives::{AtomicU64, Ordering};
use crate::stack;
use crate::stats::HeapStats;

/// The least that is allocated between two readings, in bytes.
const LEAST: u64 = 1 << 20;

/// What was allocated since the last reading, as the samples estimate it.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// How much has to be, for the next.
static NEXT: AtomicU64 = AtomicU64::new(LEAST);

static MOST_BYTES: AtomicU64 = AtomicU64::new(0);

/// A sampled allocation, which stands for so many bytes, was counted. For hooks: does not wait, and
/// leaves it if somebody else is reading.
pub(super) fn allocated(bytes: u64) {
    let since = SINCE.fetch_add(bytes, Ordering::Relaxed);
    if since.saturating_add(bytes) < NEXT.load(Ordering::Relaxed) {
        return;
    }
    // By the other protocols, readers wait for whoever is counting.
    if HEAP.protocol() != Some(Protocol::PerCpu) {
        return;
    }
    SINCE.store(0, Ordering::Relaxed);
    if let Some(live) = HEAP.try_sum(HeapDelta::live_bytes) {
        note(live);
    }
}

/// Takes notice of what a reading found in use.
fn note(live: u64) {
    MOST_BYTES.fetch_max(live, Ordering::Relaxed);
    NEXT.store(LEAST.max(live / 64), Ordering::Relaxed);
}

/// The most bytes that were in use.
pub(crate) struct Most {
    pub(crate) bytes: u64,
    /// Whether that is what the samples say, since nothing was read in between.
    pub(crate) is_estimated: bool,
}

/// Forgets the most that was in use before `now`: in the child of a fork.
pub(crate) fn restart_peak(now: &HeapStats) {
    MOST_BYTES.store(0, Ordering::Relaxed);
    note(now.live_bytes());
}

/// The most that was in use, as of this reading.
pub(crate) fn most(now: &HeapStats) -> Most {
    note(now.live_bytes());
    let read = MOST_BYTES.load(Ordering::Relaxed);
    if HEAP.protocol() == Some(Protocol::PerCpu) {
        return Most {
            bytes: read,
            is_estimated: false,
        };
    }
    let estimated = stack::TABLE.most_in_use();
    Most {
        bytes: read.max(estimated),
        is_estimated: estimated > read,
    }
}
