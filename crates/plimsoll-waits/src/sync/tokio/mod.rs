//! Locks, channels and notifications with tokio's interface, which report waiting tasks, and the
//! tasks for which they wait, to the profiles `block` and `mutex`.
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
//! # When to use them
//! A waiting task is not a waiting thread. The system observes no wait, so only the primitive can
//! report it. Threads that wait because no task can continue are in the profile as idle ones.
//!
//! Each type wraps tokio's: it is as fair, has the same errors, takes part in tokio's cooperative
//! scheduling, and works with any executor. The methods have the same signatures, so only the path
//! has to change, unless a program uses an item without counterpart. Items that need no wrapper
//! ([`watch`], [`broadcast`], [`OnceCell`] and so on) are tokio's own. Types of other crates that
//! are made from tokio's, such as `ReceiverStream`, cannot be made from these.
//!
//! # Without counterpart
//! These types and methods are missing. Where a program needs one, its lock stays tokio's own:
//!
//! * The guards of a part of the data that can be written: [`MappedMutexGuard`],
//!   [`OwnedMappedMutexGuard`], [`RwLockMappedWriteGuard`] and [`OwnedRwLockMappedWriteGuard`]; and
//!   the methods that return them, `map`, `try_map` and `into_mapped` of the other guards. A
//!   [`RwLockReadGuard`] has `map` and `try_map`.
//! * The guards that own their [`RwLock`]: [`OwnedRwLockReadGuard`] and [`OwnedRwLockWriteGuard`];
//!   and `read_owned`, `write_owned`, `try_read_owned` and `try_write_owned`. An
//!   [`OwnedMutexGuard`] owns its [`Mutex`].
//! * `RwLockWriteGuard::downgrade_map` and `try_downgrade_map`. Call
//!   [`downgrade`](RwLockWriteGuard::downgrade), and then [`map`](RwLockReadGuard::map).
//! * `mpsc::Sender::send_timeout`: [`Sender`](mpsc::Sender) documents a replacement.
//!
//! # Accounting
//! * A task has waited from its first failed attempt until the last release of the lock before it
//!   got the lock. A release is charged for all waiters, as with [`crate::sync`]. The sum of the
//!   charges equals the sum of the waits.
//! * Stacks are those of tasks: from the primitive, through the functions that await one another,
//!   to the function that polls the task. A wait is recorded at its end.
//! * Waits for [`Semaphore`], [`mpsc`], [`oneshot`] and [`Notify`] are charged to no task.
//! * A future that is dropped while it waits (`select!`, `timeout`, `abort`) has waited until then.
//!   If it waited for a lock, only the time that was charged to a release counts as a wait for the
//!   lock. The rest has the kind `given up`.
//! * Waits in [`poll_recv`](mpsc::Receiver::poll_recv) and similar methods are not counted.
//!
//! # Costs
//! One load of a word of the primitive wherever there may be waiters. Taking all of a lock also
//! loads the flag that enables the noting of owners. All else happens only if there are waiters. A
//! free primitive is taken without one of tokio's futures, which would cost more than both loads.
//! [`Mutex`], [`RwLock`] and [`Semaphore`] are larger by their names and their waiters' account,
//! futures are larger by some words, and a channel is one more allocation.
//!
//! [`watch`]: tokio::sync::watch
//! [`broadcast`]: tokio::sync::broadcast
//! [`OnceCell`]: tokio::sync::OnceCell
//! [`MappedMutexGuard`]: tokio::sync::MappedMutexGuard
//! [`OwnedMappedMutexGuard`]: tokio::sync::OwnedMappedMutexGuard
//! [`RwLockMappedWriteGuard`]: tokio::sync::RwLockMappedWriteGuard
//! [`OwnedRwLockMappedWriteGuard`]: tokio::sync::OwnedRwLockMappedWriteGuard
//! [`OwnedRwLockReadGuard`]: tokio::sync::OwnedRwLockReadGuard
//! [`OwnedRwLockWriteGuard`]: tokio::sync::OwnedRwLockWriteGuard

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

pub use mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use notify::Notify;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The named future types.
pub mod futures {
    pub use super::notify::{Notified, OwnedNotified};
}
