//! The peak of the memory in use.
//!
//! Only a reader sums the counts, so no hook sees their maximum. A thread that makes a sampled
//! allocation reads them after each MiB allocated, or 1/64 of the memory in use, whichever is more.
//! The samples estimate these amounts. So the figure may be too small by the bytes allocated at the
//! peak between two readings. The error is random: usually about that interval, and hardly ever
//! several times as much. The figure is never too large.
//! Where readers would wait for a thread that is counting, the figure comes from the samples.

use plimsoll_sys::os::signals::BlockedSignals;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use plimsoll_core::alloc::counts::{HEAP, HeapDelta};
use plimsoll_core::alloc::interposition::Peak;
use plimsoll_core::{single_thread, stack};
use plimsoll_ledger::ledger::Protocol;

/// The minimum of bytes allocated between two readings.
const MIN_DISTANCE: u64 = 1 << 20;

/// Bytes allocated since the last reading, as the samples estimate them.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// The value of `SINCE` at which the next reading is due.
static NEXT: AtomicU64 = AtomicU64::new(MIN_DISTANCE);

static MAX_BYTES: AtomicU64 = AtomicU64::new(0);

/// Records that a sampled allocation, which stands for that many bytes, was counted. For hooks:
/// skips the reading if another thread is reading. Waits for no thread but one that is counting in the shared shard, some
/// instructions long.
pub(super) fn allocated(bytes: u64) {
    let since = SINCE.fetch_add(bytes, Ordering::Relaxed);
    if since.saturating_add(bytes) < NEXT.load(Ordering::Relaxed) {
        return;
    }
    // With the other protocols, a reader waits for each thread that is counting.
    if HEAP.protocol() != Some(Protocol::PerCpu) {
        return;
    }
    SINCE.store(0, Ordering::Relaxed);
    // A fork by a signal handler would wait for the readers' lock, which this thread holds.
    let _blocked = BlockedSignals::new();
    let is_alone = single_thread::is_single_threaded() == Some(true);
    if let Some(live) = HEAP.try_sum(is_alone, HeapDelta::live_bytes) {
        // Below 0 if the program frees blocks whose allocation was not seen.
        note((live as i64).max(0) as u64);
    }
}

/// Raises the peak to `live` bytes, and sets the distance to the next reading.
fn note(live: u64) {
    MAX_BYTES.fetch_max(live, Ordering::Relaxed);
    NEXT.store(MIN_DISTANCE.max(live / 64), Ordering::Relaxed);
}

/// Discards the peak and starts again from `live_bytes`: in the child of a fork.
pub(super) fn restart_peak(live_bytes: u64) {
    MAX_BYTES.store(0, Ordering::Relaxed);
    note(live_bytes);
}

/// Returns the peak, including this reading of `live_bytes`.
pub(super) fn peak(live_bytes: u64) -> Peak {
    note(live_bytes);
    let read = MAX_BYTES.load(Ordering::Relaxed);
    if HEAP.protocol() == Some(Protocol::PerCpu) {
        return Peak {
            bytes: read,
            is_estimated: false,
        };
    }
    let estimated = stack::TABLE.most_in_use();
    Peak {
        bytes: read.max(estimated),
        is_estimated: estimated > read,
    }
}
