//! The locks of other crates, above all parking_lot's, with all of their methods and their own
//! guards. These raw locks go between [`lock_api`]'s types and the wrapped lock.
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
//! The features of the wrapped lock are available: fairness, time limits, recursion, upgrades and
//! downgrades. Only parking_lot's `Condvar` is not: it takes the guards of parking_lot's own mutex.

mod mutex;
mod rwlock;

pub use mutex::RawMutex;
pub use rwlock::RawRwLock;

use crate::contention::Ended;

/// Locks that may have a name: the locks of [`lock_api`] around [`RawMutex`] and [`RawRwLock`].
pub trait Named {
    /// Returns the name that the raw lock was created with, if any.
    fn name(&self) -> Option<&'static str>;
}

impl<R, T: ?Sized> Named for ::lock_api::Mutex<RawMutex<R>, T>
where
    R: ::lock_api::RawMutex,
{
    fn name(&self) -> Option<&'static str> {
        // SAFETY: `name` neither locks nor unlocks the raw lock.
        unsafe { self.raw() }.name()
    }
}

impl<R, T: ?Sized> Named for ::lock_api::RwLock<RawRwLock<R>, T>
where
    R: ::lock_api::RawRwLock,
{
    fn name(&self) -> Option<&'static str> {
        // SAFETY: `name` neither locks nor unlocks the raw lock.
        unsafe { self.raw() }.name()
    }
}

/// Returns how an attempt with a time limit ended.
fn in_time(&locked: &bool) -> Ended {
    if locked {
        Ended::Acquired
    } else {
        Ended::TimedOut
    }
}
