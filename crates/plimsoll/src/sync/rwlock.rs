//! Many readers, or one writer.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use super::contended::{self, keeps_its_frame};
use super::identity::Identity;
use crate::contention::{self, WaitKind};

/// [`std::sync::RwLock`], whose waits are in the profiles.
///
/// The writer that gives it up is blamed for all who wait, be it to read or to write; a reader, one
/// of several too, for those who wait to write.
#[repr(C)]
pub struct RwLock<T: ?Sized> {
    identity: Identity,
    inner: sync::RwLock<T>,
}

/// [`std::sync::RwLockReadGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    inner: ManuallyDrop<sync::RwLockReadGuard<'a, T>>,
    lock: &'a Identity,
}

/// [`std::sync::RwLockWriteGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    inner: ManuallyDrop<sync::RwLockWriteGuard<'a, T>>,
    lock: &'a Identity,
}

impl<T> RwLock<T> {
    /// Creates a lock that nobody holds.
    #[inline]
    pub const fn new(t: T) -> Self {
        Self {
            identity: Identity::new(None),
            inner: sync::RwLock::new(t),
        }
    }

    /// The same with a name.
    #[inline]
    pub const fn named(name: &'static str, t: T) -> Self {
        Self {
            identity: Identity::new(Some(name)),
            inner: sync::RwLock::new(t),
        }
    }

    /// As [`std::sync::RwLock::into_inner`].
    ///
    /// # Errors
    /// If the lock is poisoned.
    #[inline]
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// The name it was created with.
    pub const fn name(&self) -> Option<&'static str> {
        self.identity.name
    }

    /// As [`std::sync::RwLock::read`].
    ///
    /// # Errors
    /// If the lock is poisoned; it is locked even so.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Ok(inner) => Ok(self.read_guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(PoisonError::new(self.read_guard(poisoned.into_inner())))
            }
            Err(TryLockError::WouldBlock) => {
                let block = || self.inner.read();
                let locked = contended::wait_for_lock(WaitKind::RwLockRead, &self.identity, block);
                keeps_its_frame();
                match locked {
                    Ok(inner) => Ok(self.read_guard(inner)),
                    Err(poisoned) => Err(PoisonError::new(self.read_guard(poisoned.into_inner()))),
                }
            }
        }
    }

    /// As [`std::sync::RwLock::try_read`].
    ///
    /// # Errors
    /// If somebody writes or waits to write, or if it is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Ok(inner) => Ok(self.read_guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(PoisonError::new(
                self.read_guard(poisoned.into_inner()),
            ))),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// As [`std::sync::RwLock::write`].
    ///
    /// # Errors
    /// If the lock is poisoned; it is locked even so.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        if contention::notes_owners() {
            let inner = self.write_noted();
            keeps_its_frame();
            // As it was when it was locked: only a writer poisons it.
            let is_poisoned = self.inner.is_poisoned();
            let guard = self.unnoted(inner);
            return if is_poisoned {
                Err(PoisonError::new(guard))
            } else {
                Ok(guard)
            };
        }
        match self.inner.write() {
            Ok(inner) => Ok(self.unnoted(inner)),
            Err(poisoned) => Err(PoisonError::new(self.unnoted(poisoned.into_inner()))),
        }
    }

    /// Locks it to write while anything is recorded or a report of deadlocks was asked for.
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

    /// As [`std::sync::RwLock::try_write`].
    ///
    /// # Errors
    /// If anybody holds it, or if it is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        match self.inner.try_write() {
            Ok(inner) => Ok(self.write_guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(PoisonError::new(
                self.write_guard(poisoned.into_inner()),
            ))),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// As [`std::sync::RwLock::is_poisoned`].
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// As [`std::sync::RwLock::clear_poison`].
    #[inline]
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// As [`std::sync::RwLock::get_mut`].
    ///
    /// # Errors
    /// If the lock is poisoned.
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

    /// A guard whose owner is noted elsewhere, or not.
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
        // SAFETY: it is not used after this.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        if contention::is_on() {
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
        // SAFETY: it is not used after this.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        // SAFETY: the guard is there, so the calling thread is the writer.
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
