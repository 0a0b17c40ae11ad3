//! The guards of borrowed locks.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::super::guards::guard;
use super::super::permits::{All, Held, One, Permits};

/// Counterpart of [`tokio::sync::RwLockReadGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, One, T>,
    /// The guard borrows the data.
    _data: PhantomData<&'a T>,
}

/// Counterpart of [`tokio::sync::RwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, All, T>,
    /// The guard borrows the data mutably.
    _data: PhantomData<&'a mut T>,
}

/// Counterpart of [`tokio::sync::RwLockMappedWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockMappedWriteGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, All, T>,
    /// The guard borrows the data mutably.
    _data: PhantomData<&'a mut T>,
}

// SAFETY: the guard is a shared reference to the data.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: sharing the guard shares the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: a guard is a mutable reference to the data, and can turn into a shared one. For this and
// the following types: sending a guard sends and shares the data, and sharing a guard shares the
// data.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: sharing the guard shares the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockWriteGuard<'_, T> {}
// SAFETY: sending the guard sends and shares the data.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockMappedWriteGuard<'_, T> {}
// SAFETY: sharing the guard shares the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockMappedWriteGuard<'_, T> {}

guard!({'a, T: ?Sized} RwLockReadGuard<'a, T> => T, &'a Permits);
guard!({'a, T: ?Sized} RwLockWriteGuard<'a, T> => T, &'a Permits, mut);
guard!({'a, T: ?Sized} RwLockMappedWriteGuard<'a, T> => T, &'a Permits, mut);

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// Creates a guard. The caller must hold one permit of the lock that contains `data`.
    #[inline]
    pub(super) fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// Behaves like [`tokio::sync::RwLockReadGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(this: Self, f: F) -> RwLockReadGuard<'a, V>
    where
        F: FnOnce(&T) -> &V,
    {
        let data = f(&this).into();
        RwLockReadGuard::new(Self::into_lock(this), data)
    }

    /// Behaves like [`tokio::sync::RwLockReadGuard::try_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
    #[inline]
    pub fn try_map<F, V: ?Sized>(this: Self, f: F) -> Result<RwLockReadGuard<'a, V>, Self>
    where
        F: FnOnce(&T) -> Option<&V>,
    {
        match f(&this).map(NonNull::from) {
            Some(data) => Ok(RwLockReadGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Creates a guard. The caller must hold all permits of the lock that contains `data`.
    #[inline]
    pub(super) fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// Behaves like [`tokio::sync::RwLockWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> RwLockMappedWriteGuard<'a, V>
    where
        F: FnOnce(&mut T) -> &mut V,
    {
        let data = f(&mut this).into();
        RwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// Behaves like [`tokio::sync::RwLockWriteGuard::try_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
    #[inline]
    pub fn try_map<F, V: ?Sized>(
        mut this: Self,
        f: F,
    ) -> Result<RwLockMappedWriteGuard<'a, V>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut V>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(RwLockMappedWriteGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }

    /// Behaves like [`tokio::sync::RwLockWriteGuard::into_mapped`].
    #[inline]
    pub fn into_mapped(this: Self) -> RwLockMappedWriteGuard<'a, T> {
        Self::map(this, |data| data)
    }

    /// Behaves like [`tokio::sync::RwLockWriteGuard::downgrade`].
    #[inline]
    pub fn downgrade(self) -> RwLockReadGuard<'a, T> {
        let data = self.held.data();
        RwLockReadGuard::new(Self::into_lock(self).downgraded(), data)
    }

    /// Behaves like [`tokio::sync::RwLockWriteGuard::downgrade_map`].
    #[inline]
    pub fn downgrade_map<F, V: ?Sized>(this: Self, f: F) -> RwLockReadGuard<'a, V>
    where
        F: FnOnce(&T) -> &V,
    {
        let data = f(&this).into();
        RwLockReadGuard::new(Self::into_lock(this).downgraded(), data)
    }

    /// Behaves like [`tokio::sync::RwLockWriteGuard::try_downgrade_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
    #[inline]
    pub fn try_downgrade_map<F, V: ?Sized>(this: Self, f: F) -> Result<RwLockReadGuard<'a, V>, Self>
    where
        F: FnOnce(&T) -> Option<&V>,
    {
        match f(&this).map(NonNull::from) {
            Some(data) => Ok(RwLockReadGuard::new(
                Self::into_lock(this).downgraded(),
                data,
            )),
            None => Err(this),
        }
    }
}

impl<'a, T: ?Sized> RwLockMappedWriteGuard<'a, T> {
    /// Creates a guard. The caller must hold all permits of the lock that contains `data`.
    #[inline]
    pub(super) fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// Behaves like [`tokio::sync::RwLockMappedWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> RwLockMappedWriteGuard<'a, V>
    where
        F: FnOnce(&mut T) -> &mut V,
    {
        let data = f(&mut this).into();
        RwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// Behaves like [`tokio::sync::RwLockMappedWriteGuard::try_map`].
    ///
    /// # Errors
    /// Returns the guard unchanged if `f` returns `None`.
    #[inline]
    pub fn try_map<F, V: ?Sized>(
        mut this: Self,
        f: F,
    ) -> Result<RwLockMappedWriteGuard<'a, V>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut V>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(RwLockMappedWriteGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }
}
