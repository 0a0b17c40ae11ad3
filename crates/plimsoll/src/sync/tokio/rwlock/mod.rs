//! Many readers, or one writer.

mod guards;
mod owned;

pub use guards::{RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard};
pub use owned::{OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use tokio::sync::TryLockError;

use super::permits::{All, One, Permits};
use crate::contention::WaitKind;

/// [`tokio::sync::RwLock`], whose waits are in the profiles.
///
/// Whoever gives it up, one of several readers too, is blamed for all who wait, be it to read or to
/// write.
pub struct RwLock<T: ?Sized> {
    permits: Permits,
    data: UnsafeCell<T>,
}

// SAFETY: the lock and its data are sent together.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: who shares the lock gets at the data: several may read at once, or one at a time, not
// always the same, may write.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// As many readers as tokio's have unless told otherwise, which is the most.
const MOST_READERS: u32 = u32::MAX >> 3;

impl<T> RwLock<T> {
    /// Creates a lock that nobody holds.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self::create(None, value, MOST_READERS)
    }

    /// As [`tokio::sync::RwLock::const_new`]: as [`RwLock::new`].
    #[inline]
    pub const fn const_new(value: T) -> Self {
        Self::create(None, value, MOST_READERS)
    }

    /// The same with a name.
    #[inline]
    pub const fn named(name: &'static str, value: T) -> Self {
        Self::create(Some(name), value, MOST_READERS)
    }

    /// As [`tokio::sync::RwLock::with_max_readers`].
    ///
    /// # Panics
    /// If that is 0, or more than `u32::MAX >> 3`.
    #[track_caller]
    pub const fn with_max_readers(value: T, max_reads: u32) -> Self {
        assert!(max_reads != 0, "a RwLock may not be created with 0 readers");
        assert!(
            max_reads <= MOST_READERS,
            "a RwLock may not be created with that many readers"
        );
        Self::create(None, value, max_reads)
    }

    /// As [`tokio::sync::RwLock::const_with_max_readers`]: as [`RwLock::with_max_readers`].
    ///
    /// # Panics
    /// As that.
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

    /// As [`tokio::sync::RwLock::into_inner`].
    #[inline]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// The name it was created with.
    pub const fn name(&self) -> Option<&'static str> {
        self.permits.name()
    }

    /// As [`tokio::sync::RwLock::read`].
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        self.permits.take::<One>(WaitKind::RwLockRead).await;
        RwLockReadGuard::new(&self.permits, self.data())
    }

    /// As [`tokio::sync::RwLock::read_owned`].
    pub async fn read_owned(self: Arc<Self>) -> OwnedRwLockReadGuard<T> {
        self.permits.take::<One>(WaitKind::RwLockRead).await;
        let data = self.data();
        OwnedRwLockReadGuard::new(self, data)
    }

    /// As [`tokio::sync::RwLock::blocking_read`].
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        self.permits.take_blocking::<One>(WaitKind::RwLockRead);
        RwLockReadGuard::new(&self.permits, self.data())
    }

    /// As [`tokio::sync::RwLock::try_read`].
    ///
    /// # Errors
    /// If somebody writes or waits to write.
    #[inline]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.permits.try_take::<One>()?;
        Ok(RwLockReadGuard::new(&self.permits, self.data()))
    }

    /// As [`tokio::sync::RwLock::try_read_owned`].
    ///
    /// # Errors
    /// If somebody writes or waits to write.
    #[inline]
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, TryLockError> {
        self.permits.try_take::<One>()?;
        let data = self.data();
        Ok(OwnedRwLockReadGuard::new(self, data))
    }

    /// As [`tokio::sync::RwLock::write`].
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.permits.take::<All>(WaitKind::RwLockWrite).await;
        RwLockWriteGuard::new(&self.permits, self.data())
    }

    /// As [`tokio::sync::RwLock::write_owned`].
    pub async fn write_owned(self: Arc<Self>) -> OwnedRwLockWriteGuard<T> {
        self.permits.take::<All>(WaitKind::RwLockWrite).await;
        let data = self.data();
        OwnedRwLockWriteGuard::new(self, data)
    }

    /// As [`tokio::sync::RwLock::blocking_write`].
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_write(&self) -> RwLockWriteGuard<'_, T> {
        self.permits.take_blocking::<All>(WaitKind::RwLockWrite);
        RwLockWriteGuard::new(&self.permits, self.data())
    }

    /// As [`tokio::sync::RwLock::try_write`].
    ///
    /// # Errors
    /// If anybody holds it.
    #[inline]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.permits.try_take::<All>()?;
        Ok(RwLockWriteGuard::new(&self.permits, self.data()))
    }

    /// As [`tokio::sync::RwLock::try_write_owned`].
    ///
    /// # Errors
    /// If anybody holds it.
    #[inline]
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        self.permits.try_take::<All>()?;
        let data = self.data();
        Ok(OwnedRwLockWriteGuard::new(self, data))
    }

    /// As [`tokio::sync::RwLock::get_mut`].
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
