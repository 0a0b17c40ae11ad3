//! Locks, conditions and channels with the interface of the standard library, which report their
//! waits and releases to the profiles `block` and `mutex`.
//!
//! ```
//! use plimsoll::sync::Mutex;      // was: std::sync::Mutex
//!
//! static JOBS: Mutex<Vec<u32>> = Mutex::named("jobs", Vec::new());
//!
//! JOBS.lock().unwrap().push(1);
//! assert_eq!(JOBS.name(), Some("jobs"));
//! ```
//!
//! # When to use them
//! With the feature `interpose`, the waits of `std::sync` are recorded without any change to the
//! program. These types are for locks that should have a name, and for places where interposition
//! is impossible: shared libraries that are loaded into another program, systems other than Linux
//! with glibc on x86-64 or aarch64, and programs that define a `syscall` function. Where both
//! apply, no wait is counted twice.
//!
//! The primitives for tasks are in `tokio`, with the feature of that name.
//!
//! Each type wraps the standard library's, so it waits, spins, is fair and is poisoned like that
//! one. Errors are the standard library's own types. The module re-exports items that need no
//! wrapper ([`Arc`], [`OnceLock`], [`atomic`] and so on), so only the path has to change.
//!
//! # Accounting
//! * A thread that does not get a lock at once has waited for it until the last release before it
//!   got the lock; spinning counts. The time from that release until the thread runs again is its
//!   wake-up latency.
//! * A release of a lock is charged, for all waiters, the time that was not charged before. The sum
//!   of the charges equals the sum of the waits for locks.
//! * Waits for [`Condvar`], [`Barrier`], [`Once`] and [`mpsc`] are charged to no thread. A
//!   [`Condvar::wait`] releases the mutex, and is charged for the waiters of the mutex. Its own wait
//!   for the mutex afterwards is part of the wait.
//!
//! # Costs
//! While nothing is recorded and no report of deadlocks was requested, taking a lock reads one byte
//! that is written only when this changes. Releasing the lock then reads one word of the lock.
//! Otherwise the lock notes its owner in that word. If no thread waits, one more cache line is
//! read, and no clock. A lock is larger by a name and a word.
//!
//! A report of deadlocks is requested by serving the pages, by `dump_on`, and by the first reading
//! of `goroutine`, `goroutineleak` or a dump. A lock that was taken earlier has no known owner: it
//! proves no deadlock, and its release is in no profile.

// Implementation: the quick attempt, and the whole operation while nothing is recorded, are inlined
// and belong to the inner primitive. All else is in `contended`, whose functions are never inlined.
// So a stack begins at their caller, the method of the primitive.

mod barrier;
mod condvar;
mod contended;
mod identity;
#[cfg(feature = "lock_api")]
pub mod lock_api;
pub mod mpsc;
mod mutex;
mod once;
mod results;
mod rwlock;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use std::sync::{
    Arc, LazyLock, LockResult, OnceLock, OnceState, PoisonError, TryLockError, TryLockResult, Weak,
    atomic,
};

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
