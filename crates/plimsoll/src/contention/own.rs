//! Plimsoll's own contention, apart from the program's.
//!
//! A wait is Plimsoll's if its thread is in an [own scope](crate::own::scope), as all of Plimsoll's
//! threads are, or if it is for a lock of Plimsoll's: a [`Mutex`](crate::primitives::Mutex), or the
//! lock of Plimsoll's heap. Such a wait never enters the table of waiters. So no release can be
//! blamed for it, whichever thread releases the lock.
//!
//! A release in an own scope that the program waited for is Plimsoll's as well. The waiter's side
//! stays in the program's block profile.
//!
//! Both go to sums and to a kind of bucket of their own: the profile `selfcontention`.

use super::{WaitKind, clock, is_on, record};
use crate::alloc::thread::peek_own_scope;
use crate::primitives::{AtomicU64, Ordering};
use crate::stack::Start;

static EVENTS: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Sums over all own waits, and own releases that the program waited for, sampled or not, while
/// there was a block rate or a mutex fraction. Each is read at its own moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    /// A count.
    pub(crate) waits: u64,
    pub(crate) waited_ns: u64,
}

pub(crate) fn sums() -> Sums {
    Sums {
        waits: EVENTS.load(Ordering::Relaxed),
        waited_ns: NANOSECONDS.load(Ordering::Relaxed),
    }
}

/// Whether what the calling thread waits for and releases is Plimsoll's own. For hooks.
#[inline]
pub(crate) fn is_here() -> bool {
    peek_own_scope()
}

/// Adds an event to the sums.
pub(super) fn add(nanoseconds: u64) {
    EVENTS.fetch_add(1, Ordering::Relaxed);
    NANOSECONDS.fetch_add(nanoseconds, Ordering::Relaxed);
}

/// An own wait that is under way.
pub(crate) struct Wait {
    kind: WaitKind,
    /// When it began; `None` if nothing is recorded.
    start: Option<u64>,
}

impl Wait {
    /// The calling thread is about to wait.
    pub(crate) fn begin(kind: WaitKind) -> Self {
        Self {
            kind,
            start: is_on().then(clock::now),
        }
    }

    /// The wait is over; the calling thread is at `stack`.
    pub(crate) fn end(self, stack: Start) {
        if let Some(start) = self.start {
            let waited_ns = clock::now().saturating_sub(start);
            record::own_wait(self.kind, waited_ns, stack);
        }
    }
}
