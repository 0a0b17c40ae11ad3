//! Locks that a fork finds free: their holders' signals are blocked, since a signal handler may fork.

use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
use crate::os::signals::BlockedSignals;
use crate::primitives::{Mutex, MutexGuard};

/// A mutex. While a thread holds it, the thread's signals are blocked. A panic under the lock does not poison it.
///
/// Statics use a `ForkLock`. A `Keeper` holds a lock inside another type across forks.
#[derive(Debug)]
pub struct SignalMutex<T>(Mutex<T>);

/// The access to the value of a [`SignalMutex`].
#[derive(Debug)]
pub struct SignalGuard<'a, T> {
    // Dropped in this order: signals arrive when the lock is free.
    value: MutexGuard<'a, T>,
    #[cfg(not(loom))]
    _signals: BlockedSignals,
}

impl<T> SignalMutex<T> {
    /// Creates an unlocked mutex.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Creates an unlocked mutex.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the mutex.
    #[inline]
    pub fn lock(&self) -> SignalGuard<'_, T> {
        SignalGuard {
            #[cfg(not(loom))]
            _signals: BlockedSignals::new(),
            value: self
                .0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        }
    }

    /// Returns `None` if a thread holds the mutex.
    #[cfg(not(loom))]
    #[inline]
    pub fn try_lock(&self) -> Option<SignalGuard<'_, T>> {
        let signals = BlockedSignals::new();
        let value = match self.0.try_lock() {
            Ok(value) => value,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(SignalGuard {
            value,
            _signals: signals,
        })
    }
}

impl<T> Deref for SignalGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for SignalGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
