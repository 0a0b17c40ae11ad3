//! The locks of other crates, parking_lot's first of all, with their own guards and everything they
//! can: raw locks that go between [`lock_api`]'s types and the lock.
//!
//! ```
//! use plimsoll::sync::lock_api::{Named, RawMutex};
//! # use parking_lot_0_12 as parking_lot;
//!
//! // In place of parking_lot::Mutex<T>:
//! type Mutex<T> = lock_api::Mutex<RawMutex<parking_lot::RawMutex>, T>;
//!
//! static JOBS: Mutex<u32> = Mutex::from_raw(RawMutex::named("jobs"), 0);
//!
//! *JOBS.lock() += 1;
//! assert_eq!(JOBS.name(), Some("jobs"));
//! ```
//!
//! What the inner lock can, these can: be fair, give up after a time, be taken recursively, be
//! upgraded and downgraded. parking_lot's `Condvar` takes the guards of parking_lot's own mutex
//! only.

mod mutex;
mod rwlock;

pub use mutex::RawMutex;
pub use rwlock::RawRwLock;

use crate::contention::Ended;

/// Locks that may have a name: those of [`lock_api`] around [`RawMutex`] and
/// [`RawRwLock`].
pub trait Named {
    /// The name that the raw lock was created with.
    fn name(&self) -> Option<&'static str>;
}

impl<R, T: ?Sized> Named for ::lock_api::Mutex<RawMutex<R>, T>
where
    R: ::lock_api::RawMutex,
{
    fn name(&self) -> Option<&'static str> {
        // SAFETY: it is neither locked nor unlocked.
        unsafe { self.raw() }.name()
    }
}

impl<R, T: ?Sized> Named for ::lock_api::RwLock<RawRwLock<R>, T>
where
    R: ::lock_api::RawRwLock,
{
    fn name(&self) -> Option<&'static str> {
        // SAFETY: it is neither locked nor unlocked.
        unsafe { self.raw() }.name()
    }
}

/// How an attempt for a time ended.
fn in_time(&locked: &bool) -> Ended {
    if locked {
        Ended::Acquired
    } else {
        Ended::TimedOut
    }
}
