//! What a reader or the writer has of a lock that it owns a part of.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use super::super::guards::guard;
use super::super::permits::{All, Held, Lock, One, Permits};
use super::RwLock;

/// [`tokio::sync::OwnedRwLockReadGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockReadGuard<T: ?Sized, U: ?Sized = T> {
    held: Held<Arc<RwLock<T>>, One, U>,
}

/// [`tokio::sync::OwnedRwLockWriteGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockWriteGuard<T: ?Sized> {
    held: Held<Arc<RwLock<T>>, All, T>,
}

/// [`tokio::sync::OwnedRwLockMappedWriteGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockMappedWriteGuard<T: ?Sized, U: ?Sized = T> {
    held: Held<Arc<RwLock<T>>, All, U>,
    /// What may be written to.
    _data: PhantomData<*mut U>,
}

// SAFETY: it is a shared reference to some data, and whoever has the last one drops the lock. So
// for this and those below: to send it sends and shares the lock.
unsafe impl<T, U> Send for OwnedRwLockReadGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Sync,
{
}
// SAFETY: as above.
unsafe impl<T, U> Sync for OwnedRwLockReadGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Send + Sync,
{
}
// SAFETY: as above, with a mutable reference to the data, which turns into a shared one.
unsafe impl<T: ?Sized + Send + Sync> Send for OwnedRwLockWriteGuard<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedRwLockWriteGuard<T> {}
// SAFETY: as above.
unsafe impl<T, U> Send for OwnedRwLockMappedWriteGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Send + Sync,
{
}
// SAFETY: as above.
unsafe impl<T, U> Sync for OwnedRwLockMappedWriteGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Send + Sync,
{
}

guard!({T: ?Sized, U: ?Sized} OwnedRwLockReadGuard<T, U> => U, Arc<RwLock<T>>);
guard!({T: ?Sized} OwnedRwLockWriteGuard<T> => T, Arc<RwLock<T>>, mut);
guard!({T: ?Sized, U: ?Sized} OwnedRwLockMappedWriteGuard<T, U> => U, Arc<RwLock<T>>, mut);

impl<T: ?Sized> Lock for Arc<RwLock<T>> {
    #[inline]
    fn permits(&self) -> &Permits {
        &self.permits
    }
}

impl<T: ?Sized, U: ?Sized> OwnedRwLockReadGuard<T, U> {
    /// The caller holds one permit of the lock that the data is in.
    #[inline]
    pub(super) fn new(lock: Arc<RwLock<T>>, data: NonNull<U>) -> Self {
        Self {
            held: Held::new(lock, data),
        }
    }

    /// As [`tokio::sync::OwnedRwLockReadGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(this: Self, f: F) -> OwnedRwLockReadGuard<T, V>
    where
        F: FnOnce(&U) -> &V,
    {
        let data = f(&this).into();
        OwnedRwLockReadGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::OwnedRwLockReadGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<F, V: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockReadGuard<T, V>, Self>
    where
        F: FnOnce(&U) -> Option<&V>,
    {
        match f(&this).map(NonNull::from) {
            Some(data) => Ok(OwnedRwLockReadGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }

    /// As [`tokio::sync::OwnedRwLockReadGuard::rwlock`].
    #[inline]
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.held.lock()
    }
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    /// The caller holds all permits of the lock that the data is in.
    #[inline]
    pub(super) fn new(lock: Arc<RwLock<T>>, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(lock, data),
        }
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, V>
    where
        F: FnOnce(&mut T) -> &mut V,
    {
        let data = f(&mut this).into();
        OwnedRwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<F, V: ?Sized>(
        mut this: Self,
        f: F,
    ) -> Result<OwnedRwLockMappedWriteGuard<T, V>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut V>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(OwnedRwLockMappedWriteGuard::new(
                Self::into_lock(this),
                data,
            )),
            None => Err(this),
        }
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::into_mapped`].
    #[inline]
    pub fn into_mapped(this: Self) -> OwnedRwLockMappedWriteGuard<T> {
        Self::map(this, |data| data)
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::downgrade`].
    #[inline]
    pub fn downgrade(self) -> OwnedRwLockReadGuard<T> {
        let (data, lock) = (self.held.data(), Self::into_lock(self));
        lock.permits.downgraded();
        OwnedRwLockReadGuard::new(lock, data)
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::downgrade_map`].
    #[inline]
    pub fn downgrade_map<F, V: ?Sized>(this: Self, f: F) -> OwnedRwLockReadGuard<T, V>
    where
        F: FnOnce(&T) -> &V,
    {
        let data = f(&this).into();
        let lock = Self::into_lock(this);
        lock.permits.downgraded();
        OwnedRwLockReadGuard::new(lock, data)
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::try_downgrade_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_downgrade_map<F, V: ?Sized>(
        this: Self,
        f: F,
    ) -> Result<OwnedRwLockReadGuard<T, V>, Self>
    where
        F: FnOnce(&T) -> Option<&V>,
    {
        match f(&this).map(NonNull::from) {
            Some(data) => {
                let lock = Self::into_lock(this);
                lock.permits.downgraded();
                Ok(OwnedRwLockReadGuard::new(lock, data))
            }
            None => Err(this),
        }
    }

    /// As [`tokio::sync::OwnedRwLockWriteGuard::rwlock`].
    #[inline]
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.held.lock()
    }
}

impl<T: ?Sized, U: ?Sized> OwnedRwLockMappedWriteGuard<T, U> {
    /// The caller holds all permits of the lock that the data is in.
    #[inline]
    pub(super) fn new(lock: Arc<RwLock<T>>, data: NonNull<U>) -> Self {
        Self {
            held: Held::new(lock, data),
            _data: PhantomData,
        }
    }

    /// As [`tokio::sync::OwnedRwLockMappedWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, V>
    where
        F: FnOnce(&mut U) -> &mut V,
    {
        let data = f(&mut this).into();
        OwnedRwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::OwnedRwLockMappedWriteGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<F, V: ?Sized>(
        mut this: Self,
        f: F,
    ) -> Result<OwnedRwLockMappedWriteGuard<T, V>, Self>
    where
        F: FnOnce(&mut U) -> Option<&mut V>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(OwnedRwLockMappedWriteGuard::new(
                Self::into_lock(this),
                data,
            )),
            None => Err(this),
        }
    }

    /// As [`tokio::sync::OwnedRwLockMappedWriteGuard::rwlock`].
    #[inline]
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.held.lock()
    }
}
