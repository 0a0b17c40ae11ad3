//! The switches that every lock of `plimsoll::sync` and every hook reads: whether lock events are
//! recorded, and whether locks note their owners.

use plimsoll_sys::primitives::{AtomicU8, Ordering};

/// [`RECORDS`] and [`OWNERS`], in a separate cache line: it is read wherever a lock of
/// `plimsoll::sync` is taken.
static ON: Line = Line(AtomicU8::new(0));

/// Set if either rate is not 0.
const RECORDS: u8 = 1;

/// Set after a report of deadlocks was requested: from then on, locks note their owners.
const OWNERS: u8 = 2;

#[repr(align(64))]
struct Line(AtomicU8);

/// Returns whether events are recorded.
#[inline]
pub fn is_on() -> bool {
    ON.0.load(Ordering::Relaxed) & RECORDS != 0
}

/// Returns whether locks note their owners: events are recorded, or a report of deadlocks was
/// requested.
#[inline]
pub fn notes_owners() -> bool {
    ON.0.load(Ordering::Relaxed) != 0
}

/// Makes locks note their owners from now on, for a report of deadlocks. Returns whether they
/// already did.
///
/// Called by each reading that reports deadlocks, and where readings become possible: when pages
/// are served, or a signal is set that writes a dump. The owner of a lock that was taken earlier is
/// unknown until the lock is taken again, so it does not prove a deadlock.
pub fn note_owners() -> bool {
    ON.0.fetch_or(OWNERS, Ordering::Relaxed) != 0
}

/// Sets whether events are recorded.
pub fn set_on(is_on: bool) {
    if is_on {
        ON.0.fetch_or(RECORDS, Ordering::Relaxed);
    } else {
        ON.0.fetch_and(!RECORDS, Ordering::Relaxed);
    }
}
