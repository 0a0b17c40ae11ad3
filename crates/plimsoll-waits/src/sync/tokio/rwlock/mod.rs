//! A readers-writer lock for tasks.

mod guards;

pub use guards::{RwLockReadGuard, RwLockWriteGuard};

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;

use tokio::sync::TryLockError;

use super::permits::{All, One, Permits};
use crate::contention::WaitKind;

/// A [`tokio::sync::RwLock`] whose waits are in the profiles.
///
/// A release, even by one of several readers, is charged for all waiters, readers and writers.
pub struct RwLock<T: ?Sized> {
    permits: Permits,
    data: UnsafeCell<T>,
}

// SAFETY: the lock and its data are sent together.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: sharing the lock gives access to the data. Several threads may read at once, so `T` is
// `Sync`; different threads may write in turn, so `T` is `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// Tokio's default number of readers, which is the maximum.
const MAX_READERS: u32 = u32::MAX >> 3;

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self::create(None, value, MAX_READERS)
    }

    /// Same as [`RwLock::new`]; counterpart of [`tokio::sync::RwLock::const_new`].
    #[inline]
    pub const fn const_new(value: T) -> Self {
        Self::create(None, value, MAX_READERS)
    }

    /// Creates an unlocked lock with a name.
    #[inline]
    pub const fn named(name: &'static str, value: T) -> Self {
        Self::create(Some(name), value, MAX_READERS)
    }

    /// Behaves like [`tokio::sync::RwLock::with_max_readers`].
    ///
    /// # Panics
    /// Panics if `max_reads` is 0, or more than `u32::MAX >> 3`.
    #[track_caller]
    pub const fn with_max_readers(value: T, max_reads: u32) -> Self {
        assert!(max_reads != 0, "a RwLock may not be created with 0 readers");
        assert!(
            max_reads <= MAX_READERS,
            "a RwLock may not be created with that many readers"
        );
        Self::create(None, value, max_reads)
    }

    /// Same as [`RwLock::with_max_readers`]; counterpart of
    /// [`tokio::sync::RwLock::const_with_max_readers`].
    ///
    /// # Panics
    /// Panics as [`RwLock::with_max_readers`] does.
    #[track_caller]
    pub const fn const_with_max_readers(value: T, max_reads: u32) -> Self {
        Self::with_max_readers(value, max_reads)
    }

    const fn create(name: Option<&'static str>, value: T, max_reads: u32) -> Self {
        Self {
            permits: Permits::new(name, max_reads),
            data: UnsafeCell::new(value),
        }
    }

    /// Behaves like [`tokio::sync::RwLock::into_inner`].
    #[inline]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.permits.name()
    }

    /// Behaves like [`tokio::sync::RwLock::read`].
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        self.permits.take::<One>(WaitKind::RwLockRead).await;
        RwLockReadGuard::new(&self.permits, self.data())
    }

    /// Behaves like [`tokio::sync::RwLock::blocking_read`].
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        self.permits.take_blocking::<One>(WaitKind::RwLockRead);
        RwLockReadGuard::new(&self.permits, self.data())
    }

    /// Behaves like [`tokio::sync::RwLock::try_read`].
    ///
    /// # Errors
    /// Fails if the lock is locked for writing, or a writer waits.
    #[inline]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.permits.try_take::<One>()?;
        Ok(RwLockReadGuard::new(&self.permits, self.data()))
    }

    /// Behaves like [`tokio::sync::RwLock::write`].
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.permits.take::<All>(WaitKind::RwLockWrite).await;
        RwLockWriteGuard::new(&self.permits, self.data())
    }

    /// Behaves like [`tokio::sync::RwLock::blocking_write`].
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_write(&self) -> RwLockWriteGuard<'_, T> {
        self.permits.take_blocking::<All>(WaitKind::RwLockWrite);
        RwLockWriteGuard::new(&self.permits, self.data())
    }

    /// Behaves like [`tokio::sync::RwLock::try_write`].
    ///
    /// # Errors
    /// Fails if the lock is held.
    #[inline]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.permits.try_take::<All>()?;
        Ok(RwLockWriteGuard::new(&self.permits, self.data()))
    }

    /// Behaves like [`tokio::sync::RwLock::get_mut`].
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    #[inline]
    fn data(&self) -> NonNull<T> {
        // SAFETY: a pointer to a field is not null.
        unsafe { NonNull::new_unchecked(self.data.get()) }
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RwLock");
        match self.try_read() {
            Ok(guard) => shown.field("data", &&*guard),
            Err(_) => shown.field("data", &format_args!("<locked>")),
        };
        shown.finish()
    }
}
