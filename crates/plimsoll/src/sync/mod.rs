//! The standard library's locks, conditions and channels, which tell the profiles `block` and
//! `mutex` who waits for whom; and two primitives that the standard library does not have.
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
//! # What for
//! With the feature `interpose`, the waits of `std::sync` are seen as they are: nothing has to be
//! changed. These types are for where that is not to be had (shared libraries that are loaded into
//! somebody else's program, systems other than Linux with glibc on x86-64, programs that have a
//! `syscall` function of their own), and for locks that are to have a name. Where both are there,
//! nothing is counted twice.
//!
//! For what tasks wait for there is `tokio`, with the feature of that name.
//!
//! They are the standard library's, inside; so they wait, spin, are fair and are poisoned as those.
//! Errors are the standard library's own types. What it has and these are not made for ([`Arc`],
//! [`OnceLock`], [`atomic`] and so on) is here as it is, so that it is enough to change the path.
//!
//! # What is counted
//! * A thread that does not get a lock at once has waited for it, from there until the last time
//!   that somebody gave the lock up before it got it; spinning counts. The time between, until it
//!   runs again, is its wake-up latency.
//! * Whoever gives up a lock is blamed for all who wait for it, for as long as nobody was blamed
//!   before. The sum of what was blamed on releases is the sum of what was waited for locks.
//! * [`Condvar`], [`Barrier`], [`Once`], [`mpsc`], [`Semaphore`] and [`WaitGroup`] are waited for,
//!   and blame nobody. A [`Condvar::wait`] gives up the mutex, and is blamed for those who wait for
//!   that; its waiting for the mutex afterwards is part of the wait.
//!
//! # What it costs
//! While nothing is recorded and no report of deadlocks was asked for, a look at one byte where a
//! lock is taken, which is written to only when that changes, and a look at a word of the lock where
//! it is given up. Otherwise the lock notes its owner there, and where no thread waits, one cache
//! line more is read, and no clock. A lock is larger by a name and a word.
//!
//! A report of deadlocks is asked for by serving the pages, by `dump_on`, and by the first reading
//! of `goroutine`, `goroutineleak` or a dump. A lock that was taken before has no known owner: no
//! deadlock is proved by it, and its release is in no profile.

// How they are built: the quick attempt, and what is done when nothing is recorded, are inlined and
// are the inner primitive's. All else goes through `contended`, whose functions are never inlined,
// so that a stack begins at their caller: the method of the primitive.

mod barrier;
mod condvar;
mod contended;
mod identity;
#[cfg(feature = "lock_api")]
pub mod lock_api;
pub mod mpsc;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
#[cfg(feature = "tokio")]
pub mod tokio;
mod wait_group;

pub use std::sync::{
    Arc, LazyLock, LockResult, OnceLock, OnceState, PoisonError, TryLockError, TryLockResult, Weak,
    atomic,
};

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Semaphore, SemaphorePermit};
pub use wait_group::WaitGroup;
