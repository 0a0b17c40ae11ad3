//! The mutex of Plimsoll's data, which reports its waits to the [observer](super::observe_waits).

use std::sync::{self, LockResult, MutexGuard, TryLockError, TryLockResult};

use super::wait_observer::observed;

/// A [`std::sync::Mutex`] whose waits count as Plimsoll's own.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks the mutex, as [`std::sync::Mutex::lock`] does.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => self.lock_cold(),
        }
    }

    /// Locks the mutex if it is free, as [`std::sync::Mutex::try_lock`] does.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    #[cold]
    #[inline(never)]
    fn lock_cold(&self) -> LockResult<MutexGuard<'_, T>> {
        let mut locked = None;
        observed(&mut || locked = Some(self.0.lock()));
        locked.expect("the observer calls the wait")
    }
}
