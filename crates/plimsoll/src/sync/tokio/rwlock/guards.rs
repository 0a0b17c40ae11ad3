//! What a reader or the writer has of a lock.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::super::guards::guard;
use super::super::permits::{All, Held, One, Permits};

/// [`tokio::sync::RwLockReadGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, One, T>,
    /// What is borrowed.
    _data: PhantomData<&'a T>,
}

/// [`tokio::sync::RwLockWriteGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, All, T>,
    /// What is borrowed.
    _data: PhantomData<&'a mut T>,
}

/// [`tokio::sync::RwLockMappedWriteGuard`] of such a lock.
#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockMappedWriteGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, All, T>,
    /// What is borrowed.
    _data: PhantomData<&'a mut T>,
}

// SAFETY: it is a shared reference.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: a guard is a mutable reference to the data, which turns into a shared one. So for this
// and those below: to send it sends and shares the data, to share it shares the data.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockWriteGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockMappedWriteGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockMappedWriteGuard<'_, T> {}

guard!({'a, T: ?Sized} RwLockReadGuard<'a, T> => T, &'a Permits);
guard!({'a, T: ?Sized} RwLockWriteGuard<'a, T> => T, &'a Permits, mut);
guard!({'a, T: ?Sized} RwLockMappedWriteGuard<'a, T> => T, &'a Permits, mut);

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// The caller holds one permit of the lock that the data is in.
    #[inline]
    pub(super) fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// As [`tokio::sync::RwLockReadGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(this: Self, f: F) -> RwLockReadGuard<'a, V>
    where
        F: FnOnce(&T) -> &V,
    {
        let data = f(&this).into();
        RwLockReadGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::RwLockReadGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
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
    /// The caller holds all permits of the lock that the data is in.
    #[inline]
    pub(super) fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// As [`tokio::sync::RwLockWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> RwLockMappedWriteGuard<'a, V>
    where
        F: FnOnce(&mut T) -> &mut V,
    {
        let data = f(&mut this).into();
        RwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::RwLockWriteGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
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

    /// As [`tokio::sync::RwLockWriteGuard::into_mapped`].
    #[inline]
    pub fn into_mapped(this: Self) -> RwLockMappedWriteGuard<'a, T> {
        Self::map(this, |data| data)
    }

    /// As [`tokio::sync::RwLockWriteGuard::downgrade`].
    #[inline]
    pub fn downgrade(self) -> RwLockReadGuard<'a, T> {
        let data = self.held.data();
        RwLockReadGuard::new(Self::into_lock(self).downgraded(), data)
    }

    /// As [`tokio::sync::RwLockWriteGuard::downgrade_map`].
    #[inline]
    pub fn downgrade_map<F, V: ?Sized>(this: Self, f: F) -> RwLockReadGuard<'a, V>
    where
        F: FnOnce(&T) -> &V,
    {
        let data = f(&this).into();
        RwLockReadGuard::new(Self::into_lock(this).downgraded(), data)
    }

    /// As [`tokio::sync::RwLockWriteGuard::try_downgrade_map`].
    ///
    /// # Errors
    /// If there is no such part.
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
    /// The caller holds all permits of the lock that the data is in.
    #[inline]
    pub(super) fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// As [`tokio::sync::RwLockMappedWriteGuard::map`].
    #[inline]
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> RwLockMappedWriteGuard<'a, V>
    where
        F: FnOnce(&mut T) -> &mut V,
    {
        let data = f(&mut this).into();
        RwLockMappedWriteGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::RwLockMappedWriteGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
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
