//! A mutex.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use super::contended::{self, keeps_its_frame};
use super::identity::Identity;
use super::results;
use crate::contention::WaitKind;
use plimsoll_tasks::recording;

/// A [`std::sync::Mutex`] whose waits are in the profiles.
#[repr(C)]
pub struct Mutex<T: ?Sized> {
    identity: Identity,
    inner: sync::Mutex<T>,
}

/// Counterpart of [`std::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized + 'a> {
    inner: ManuallyDrop<sync::MutexGuard<'a, T>>,
    lock: &'a Identity,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[inline]
    pub const fn new(t: T) -> Self {
        Self {
            identity: Identity::new(None),
            inner: sync::Mutex::new(t),
        }
    }

    /// Creates an unlocked mutex with a name.
    #[inline]
    pub const fn named(name: &'static str, t: T) -> Self {
        Self {
            identity: Identity::new(Some(name)),
            inner: sync::Mutex::new(t),
        }
    }

    /// Behaves like [`std::sync::Mutex::into_inner`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned.
    #[inline]
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.identity.name
    }

    /// Behaves like [`std::sync::Mutex::lock`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned; the mutex is locked nevertheless.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if recording::notes_owners() {
            let inner = self.lock_noted();
            keeps_its_frame();
            // Unchanged since the lock was taken: only its owner poisons it.
            let is_poisoned = self.inner.is_poisoned();
            return results::from_parts(self.unnoted(inner), is_poisoned);
        }
        results::map(self.inner.lock(), |inner| self.unnoted(inner))
    }

    /// Locks the mutex while anything is recorded, or after a report of deadlocks was requested.
    #[cold]
    #[inline(never)]
    fn lock_noted(&self) -> sync::MutexGuard<'_, T> {
        let locked = match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                let block = || self.inner.lock();
                contended::wait_for_lock(WaitKind::Mutex, &self.identity, block)
            }
        };
        self.identity.holder.note();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Behaves like [`std::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// Fails if the mutex is locked or poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        results::try_map(self.inner.try_lock(), |inner| self.guard(inner))
    }

    /// Behaves like [`std::sync::Mutex::is_poisoned`].
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Behaves like [`std::sync::Mutex::clear_poison`].
    #[inline]
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// Behaves like [`std::sync::Mutex::get_mut`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned.
    #[inline]
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    #[inline]
    fn guard<'a>(&'a self, inner: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard::from_parts(inner, &self.identity)
    }

    /// Returns a guard without noting its owner.
    #[inline]
    fn unnoted<'a>(&'a self, inner: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner: ManuallyDrop::new(inner),
            lock: &self.identity,
        }
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(t: T) -> Self {
        Self::new(t)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Takes the guard apart, into the standard library's guard, which releases the mutex, and the
    /// identity.
    pub(super) fn into_parts(self) -> (sync::MutexGuard<'a, T>, &'a Identity) {
        let mut this = ManuallyDrop::new(self);
        this.lock.holder.given_up();
        // SAFETY: `this` is neither used again nor dropped.
        (unsafe { ManuallyDrop::take(&mut this.inner) }, this.lock)
    }

    /// Assembles a guard, and notes its owner.
    #[inline]
    pub(super) fn from_parts(inner: sync::MutexGuard<'a, T>, lock: &'a Identity) -> Self {
        lock.holder.taken();
        Self {
            inner: ManuallyDrop::new(inner),
            lock,
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field is not used again: this is its last use in `drop`.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        // SAFETY: the guard exists, so the calling thread owns the lock.
        if unsafe { self.lock.holder.is_noted() } {
            contended::release_noted(self.lock, || drop(inner));
            keeps_its_frame();
        } else {
            drop(inner);
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
