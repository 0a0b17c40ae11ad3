//! A readers-writer lock.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use super::contended::{self, keeps_its_frame};
use super::identity::Identity;
use super::results;
use crate::contention::{self, WaitKind};
use plimsoll_tasks::recording;

/// A [`std::sync::RwLock`] whose waits are in the profiles.
///
/// A writer's release is charged for all waiters, readers and writers. A reader's release, even by
/// one of several readers, is charged for waiting writers.
#[repr(C)]
pub struct RwLock<T: ?Sized> {
    identity: Identity,
    inner: sync::RwLock<T>,
}

/// Counterpart of [`std::sync::RwLockReadGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    inner: ManuallyDrop<sync::RwLockReadGuard<'a, T>>,
    lock: &'a Identity,
}

/// Counterpart of [`std::sync::RwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    inner: ManuallyDrop<sync::RwLockWriteGuard<'a, T>>,
    lock: &'a Identity,
}

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    #[inline]
    pub const fn new(t: T) -> Self {
        Self {
            identity: Identity::new(None),
            inner: sync::RwLock::new(t),
        }
    }

    /// Creates an unlocked lock with a name.
    #[inline]
    pub const fn named(name: &'static str, t: T) -> Self {
        Self {
            identity: Identity::new(Some(name)),
            inner: sync::RwLock::new(t),
        }
    }

    /// Behaves like [`std::sync::RwLock::into_inner`].
    ///
    /// # Errors
    /// Fails if the lock is poisoned.
    #[inline]
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.identity.name
    }

    /// Behaves like [`std::sync::RwLock::read`].
    ///
    /// # Errors
    /// Fails if the lock is poisoned; the lock is taken nevertheless.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let locked = match self.inner.try_read() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                let block = || self.inner.read();
                let locked = contended::wait_for_lock(WaitKind::RwLockRead, &self.identity, block);
                keeps_its_frame();
                locked
            }
        };
        results::map(locked, |inner| self.read_guard(inner))
    }

    /// Behaves like [`std::sync::RwLock::try_read`].
    ///
    /// # Errors
    /// Fails if the lock is locked for writing, a writer waits, or the lock is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        results::try_map(self.inner.try_read(), |inner| self.read_guard(inner))
    }

    /// Behaves like [`std::sync::RwLock::write`].
    ///
    /// # Errors
    /// Fails if the lock is poisoned; the lock is taken nevertheless.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        if recording::notes_owners() {
            let inner = self.write_noted();
            keeps_its_frame();
            // Unchanged since the lock was taken: only a writer poisons it.
            let is_poisoned = self.inner.is_poisoned();
            return results::from_parts(self.unnoted(inner), is_poisoned);
        }
        results::map(self.inner.write(), |inner| self.unnoted(inner))
    }

    /// Locks for writing while anything is recorded, or after a report of deadlocks was requested.
    #[cold]
    #[inline(never)]
    fn write_noted(&self) -> sync::RwLockWriteGuard<'_, T> {
        let locked = match self.inner.try_write() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                let block = || self.inner.write();
                contended::wait_for_lock(WaitKind::RwLockWrite, &self.identity, block)
            }
        };
        self.identity.holder.note();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Behaves like [`std::sync::RwLock::try_write`].
    ///
    /// # Errors
    /// Fails if the lock is held or poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        results::try_map(self.inner.try_write(), |inner| self.write_guard(inner))
    }

    /// Behaves like [`std::sync::RwLock::is_poisoned`].
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Behaves like [`std::sync::RwLock::clear_poison`].
    #[inline]
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// Behaves like [`std::sync::RwLock::get_mut`].
    ///
    /// # Errors
    /// Fails if the lock is poisoned.
    #[inline]
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    #[inline]
    fn read_guard<'a>(&'a self, inner: sync::RwLockReadGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard {
            inner: ManuallyDrop::new(inner),
            lock: &self.identity,
        }
    }

    /// Returns a guard without noting its owner.
    #[inline]
    fn unnoted<'a>(&'a self, inner: sync::RwLockWriteGuard<'a, T>) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard {
            inner: ManuallyDrop::new(inner),
            lock: &self.identity,
        }
    }

    #[inline]
    fn write_guard<'a>(&'a self, inner: sync::RwLockWriteGuard<'a, T>) -> RwLockWriteGuard<'a, T> {
        self.identity.holder.taken();
        self.unnoted(inner)
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(t: T) -> Self {
        Self::new(t)
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field is not used again: this is its last use in `drop`.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        if recording::is_on() {
            contended::release(contention::release_by_reader, self.lock, || drop(inner));
            keeps_its_frame();
        } else {
            drop(inner);
        }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field is not used again: this is its last use in `drop`.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        // SAFETY: the guard exists, so the calling thread is the writer.
        if unsafe { self.lock.holder.is_noted() } {
            contended::release_noted(self.lock, || drop(inner));
            keeps_its_frame();
        } else {
            drop(inner);
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
