//! The guards of a readers-writer lock.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
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

// SAFETY: the guard is a shared reference to the data.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: sharing the guard shares the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: the guard is a mutable reference to the data, and can turn into a shared one. So sending
// it sends and shares the data.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: sharing the guard shares the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockWriteGuard<'_, T> {}

guard!({'a, T: ?Sized} RwLockReadGuard<'a, T>);
guard!({'a, T: ?Sized} RwLockWriteGuard<'a, T>, mut);

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
        Self::with_data(this, data)
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
            Some(data) => Ok(Self::with_data(this, data)),
            None => Err(this),
        }
    }

    /// Returns a guard of `data`, which the lock contains too. The permit passes to that guard.
    #[inline]
    fn with_data<V: ?Sized>(this: Self, data: NonNull<V>) -> RwLockReadGuard<'a, V> {
        let this = ManuallyDrop::new(this);
        RwLockReadGuard::new(this.held.lock(), data)
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

    /// Behaves like [`tokio::sync::RwLockWriteGuard::downgrade`].
    #[inline]
    pub fn downgrade(self) -> RwLockReadGuard<'a, T> {
        // One of the permits passes to the new guard.
        let this = ManuallyDrop::new(self);
        let permits: &'a Permits = this.held.lock();
        permits.downgrade();
        RwLockReadGuard::new(permits, this.held.data())
    }
}
