//! Tokio's locks, channels and notifications, which tell the profiles `block` and `mutex` which
//! tasks wait, and for whom.
//!
//! ```
//! use plimsoll::sync::tokio::Mutex;    // was: tokio::sync::Mutex
//!
//! static JOBS: Mutex<Vec<u32>> = Mutex::named("jobs", Vec::new());
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! JOBS.lock().await.push(1);
//! # });
//! assert_eq!(JOBS.name(), Some("jobs"));
//! ```
//!
//! # What for
//! A task that waits is no thread that waits: nothing that the system knows of is waited for, so
//! there is nothing to be seen but by who is asked. Threads that wait because no task can go on are
//! in the profile as idle ones.
//!
//! Inside they are tokio's: as fair, with the same errors, part of its cooperative scheduling, and
//! for any executor. What is here has the same methods with the same signatures, so that it is
//! enough to change the path; what is here and not wrapped ([`watch`], [`broadcast`], [`OnceCell`]
//! and so on) is tokio's as it is. Of tokio's methods, one is missing:
//! `mpsc::Sender::send_timeout`, for which [`Sender`](mpsc::Sender) has what to write instead.
//! Types of other crates that are made from tokio's, such as `ReceiverStream`, cannot be made from
//! these.
//!
//! # What is counted
//! * A task has waited from when it first had to, for a lock, until the lock was last given up
//!   before it had it; and whoever gives it up is blamed for all who wait, as with [`crate::sync`].
//!   The sum of what was blamed is the sum of what was waited.
//! * Stacks are those of tasks: from the primitive over the functions that await one another to
//!   what polls the task. A wait is seen at its end.
//! * [`Semaphore`], [`mpsc`], [`oneshot`] and [`Notify`] are waited for, and blame nobody.
//! * A future that is dropped while it waits (`select!`, `timeout`, `abort`) has waited until then.
//!   If it was for a lock, only as much of that is a wait for the lock as somebody was blamed for;
//!   the rest is of the kind `given up`.
//! * What [`poll_recv`](mpsc::Receiver::poll_recv) and its like wait is not counted.
//!
//! # What it costs
//! A look at a word of the primitive's own wherever somebody may be waiting, and at whether owners
//! are noted where all of a lock is taken; all else only where somebody waits. What is there at once
//! is taken without a future of tokio's, which costs more than both. [`Mutex`], [`RwLock`] and [`Semaphore`] are larger by their names and by who
//! waits, futures by some words, and a channel is one allocation more.
//!
//! [`watch`]: tokio::sync::watch
//! [`broadcast`]: tokio::sync::broadcast
//! [`OnceCell`]: tokio::sync::OnceCell

mod guards;
pub mod mpsc;
mod mutex;
mod notify;
pub mod oneshot;
mod permits;
mod rwlock;
mod semaphore;
mod waiting;

pub use tokio::sync::{
    AcquireError, Barrier, BarrierWaitResult, OnceCell, SetError, SetOnce, SetOnceError,
    TryAcquireError, TryLockError, broadcast, watch,
};

pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, OwnedMappedMutexGuard, OwnedMutexGuard};
pub use notify::Notify;
pub use rwlock::{
    OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock,
    RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard,
};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Futures that have names.
pub mod futures {
    pub use super::notify::{Notified, OwnedNotified};
}
