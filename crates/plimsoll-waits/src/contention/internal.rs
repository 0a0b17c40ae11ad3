//! Plimsoll's own contention, counted separately from the program's.
//!
//! A wait is Plimsoll's if its thread is in an [internal scope](plimsoll_core::internal_scope::scope), as
//! all of Plimsoll's threads are. It is also Plimsoll's if it is for one of Plimsoll's locks: a
//! [`Mutex`](plimsoll_sys::primitives::Mutex), or the lock of Plimsoll's heap. Such a wait never
//! enters the table of waiters, so no release is blamed for it, whichever thread releases the lock.
//!
//! A release in an internal scope for which the program waited is Plimsoll's as well. The waiter's
//! side stays in the program's block profile.
//!
//! Both are added to separate sums and to a separate kind of bucket: the profile `selfcontention`.

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::{WaitKind, record, suspend};
use plimsoll_core::internal_scope;
use plimsoll_core::stack::{Registers, Start};
use plimsoll_tasks::recording;

static EVENTS: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Sums over Plimsoll's own waits, and over its releases for which the program waited, sampled or
/// not, while a block rate or a mutex fraction was set. Each is read at a different moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Number of waits and releases.
    pub waits: u64,
    /// Their durations, in nanoseconds.
    pub waited_ns: u64,
}

/// Returns these sums.
pub fn sums() -> Sums {
    Sums {
        waits: EVENTS.load(Ordering::Relaxed),
        waited_ns: NANOSECONDS.load(Ordering::Relaxed),
    }
}

/// Returns whether waits and releases of the calling thread are Plimsoll's own. For hooks.
#[inline]
pub fn is_here() -> bool {
    internal_scope::is_inside()
}

/// Adds one event to the sums.
pub(super) fn add(nanoseconds: u64) {
    EVENTS.fetch_add(1, Ordering::Relaxed);
    NANOSECONDS.fetch_add(nanoseconds, Ordering::Relaxed);
}

/// A wait of Plimsoll's own, in progress.
pub struct Wait {
    kind: WaitKind,
    /// The start; `None` if nothing is recorded.
    start: Option<u64>,
}

impl Wait {
    /// Begins a wait of the calling thread.
    pub fn begin(kind: WaitKind) -> Self {
        Self {
            kind,
            start: recording::is_on().then(clock::now),
        }
    }

    /// Ends the wait, and records it; the calling thread is at `stack`.
    pub fn end(self, stack: Start) {
        if let Some(start) = self.start {
            let waited_ns = clock::now().saturating_sub(start);
            record::own_wait(self.kind, waited_ns, stack);
        }
    }
}

/// Records the wait of a thread for one of Plimsoll's locks. Registered as their observer.
pub(super) fn observe(wait: &mut dyn FnMut()) {
    let recorded = Wait::begin(WaitKind::Mutex);
    {
        let _suspended = suspend();
        wait();
    }
    recorded.end(Start::Here(Registers::here()));
}
