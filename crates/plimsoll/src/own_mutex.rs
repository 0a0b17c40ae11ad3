//! The mutex of Plimsoll's own data.
//!
//! A program's thread may wait for such a mutex on any path into the library, so the mutex itself
//! reports the wait as Plimsoll's: see [`crate::contention::own`]. The hooks skip both the wait and
//! the release. The wait, because the thread is suspended for them. The release, because the waiter
//! is not in the table of waiters.

use std::sync::{self, LockResult, MutexGuard, TryLockError, TryLockResult};

use crate::contention::{WaitKind, own, suspend};
use crate::stack::{Registers, Start};

/// [`std::sync::Mutex`], whose waits are Plimsoll's own.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// As [`std::sync::Mutex::lock`].
    #[inline]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => self.lock_cold(),
        }
    }

    /// As [`std::sync::Mutex::try_lock`].
    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    #[cold]
    #[inline(never)]
    fn lock_cold(&self) -> LockResult<MutexGuard<'_, T>> {
        let wait = own::Wait::begin(WaitKind::Mutex);
        let guard = {
            let _suspended = suspend();
            self.0.lock()
        };
        wait.end(Start::Here(Registers::here()));
        guard
    }
}
