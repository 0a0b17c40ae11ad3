//! The guards that own a share of their lock.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use super::super::guards::guard;
use super::super::permits::{All, Held, Lock, One, Permits};
use super::RwLock;

/// Counterpart of [`tokio::sync::OwnedRwLockReadGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockReadGuard<T: ?Sized, U: ?Sized = T> {
    held: Held<Arc<RwLock<T>>, One, U>,
}

/// Counterpart of [`tokio::sync::OwnedRwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockWriteGuard<T: ?Sized> {
    held: Held<Arc<RwLock<T>>, All, T>,
}

/// Counterpart of [`tokio::sync::OwnedRwLockMappedWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockMappedWriteGuard<T: ?Sized, U: ?Sized = T> {
    held: Held<Arc<RwLock<T>>, All, U>,
    /// The guard grants mutable access to the data.
    _data: PhantomData<*mut U>,
}

// SAFETY: the guard is a shared reference to data, and dropping the last reference drops the lock.
// For this and the following types: sending a guard sends and shares the lock.
unsafe impl<T, U> Send for OwnedRwLockReadGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Sync,
{
}
// SAFETY: sharing the guard shares the data and the lock.
unsafe impl<T, U> Sync for OwnedRwLockReadGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Send + Sync,
{
}
// SAFETY: the guard is a mutable reference to the data, which can turn into a shared one, and an
// owning one to the lock. Sending it sends and shares both.
unsafe impl<T: ?Sized + Send + Sync> Send for OwnedRwLockWriteGuard<T> {}
// SAFETY: sharing the guard shares the data and the lock.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedRwLockWriteGuard<T> {}
// SAFETY: sending the guard sends and shares its part of the data, and the lock.
unsafe impl<T, U> Send for OwnedRwLockMappedWriteGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Send + Sync,
{
}
// SAFETY: sharing the guard shares its part of the data, and the lock.
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
    /// Creates a guard. The caller must hold one permit of the lock that contains `data`.
    #[inline]
    pub(super) fn new(lock: Arc<RwLock<T>>, data: NonNull<U>) -> Self {
        Self {
            held: Held::new(lock, data),
        }
    }

    /// Behaves like [`tokio::sync::OwnedRwLockReadGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(this: Self, f: F) -> OwnedRwLockReadGuard<T, V>
    where
        F: FnOnce(&U) -> &V,
    {
        let data = f(&this).into();
        OwnedRwLockReadGuard::new(Self::into_lock(this), data)
    }

    /// Behaves like [`tokio::sync::OwnedRwLockReadGuard::try_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
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

    /// Behaves like [`tokio::sync::OwnedRwLockReadGuard::rwlock`].
    #[inline]
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.held.lock()
    }
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    /// Creates a guard. The caller must hold all permits of the lock that contains `data`.
    #[inline]
    pub(super) fn new(lock: Arc<RwLock<T>>, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(lock, data),
        }
    }

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, V>
    where
        F: FnOnce(&mut T) -> &mut V,
    {
        let data = f(&mut this).into();
        OwnedRwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::try_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
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

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::into_mapped`].
    #[inline]
    pub fn into_mapped(this: Self) -> OwnedRwLockMappedWriteGuard<T> {
        Self::map(this, |data| data)
    }

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::downgrade`].
    #[inline]
    pub fn downgrade(self) -> OwnedRwLockReadGuard<T> {
        let (data, lock) = (self.held.data(), Self::into_lock(self));
        lock.permits.downgraded();
        OwnedRwLockReadGuard::new(lock, data)
    }

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::downgrade_map`].
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

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::try_downgrade_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
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

    /// Behaves like [`tokio::sync::OwnedRwLockWriteGuard::rwlock`].
    #[inline]
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.held.lock()
    }
}

impl<T: ?Sized, U: ?Sized> OwnedRwLockMappedWriteGuard<T, U> {
    /// Creates a guard. The caller must hold all permits of the lock that contains `data`.
    #[inline]
    pub(super) fn new(lock: Arc<RwLock<T>>, data: NonNull<U>) -> Self {
        Self {
            held: Held::new(lock, data),
            _data: PhantomData,
        }
    }

    /// Behaves like [`tokio::sync::OwnedRwLockMappedWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, V>
    where
        F: FnOnce(&mut U) -> &mut V,
    {
        let data = f(&mut this).into();
        OwnedRwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// Behaves like [`tokio::sync::OwnedRwLockMappedWriteGuard::try_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
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

    /// Behaves like [`tokio::sync::OwnedRwLockMappedWriteGuard::rwlock`].
    #[inline]
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.held.lock()
    }
}
