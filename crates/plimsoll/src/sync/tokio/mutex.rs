//! Mutual exclusion.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use tokio::sync::TryLockError;

use super::guards::guard;
use super::permits::{All, Held, Lock, Permits};
use crate::contention::WaitKind;

/// [`tokio::sync::Mutex`], whose waits are in the profiles.
pub struct Mutex<T: ?Sized> {
    permits: Permits,
    data: UnsafeCell<T>,
}

/// [`tokio::sync::MutexGuard`] of such a mutex.
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held<&'a Mutex<T>, All, T>,
}

/// [`tokio::sync::OwnedMutexGuard`] of such a mutex.
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard<T: ?Sized> {
    held: Held<Arc<Mutex<T>>, All, T>,
}

/// [`tokio::sync::MappedMutexGuard`] of such a mutex.
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct MappedMutexGuard<'a, T: ?Sized> {
    held: Held<&'a Permits, All, T>,
    /// What is borrowed.
    _data: PhantomData<&'a mut T>,
}

/// [`tokio::sync::OwnedMappedMutexGuard`] of such a mutex.
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedMappedMutexGuard<T: ?Sized, U: ?Sized = T> {
    held: Held<Arc<Mutex<T>>, All, U>,
    /// What may be written to.
    _data: PhantomData<*mut U>,
}

// SAFETY: the data is used by one thread at a time, who locked it; which may be another than the
// one that made it or drops it.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above; shared guards have conditions of their own.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

// SAFETY: a guard is a mutable reference to the data, and a shared or owning one to the mutex. So
// for this and those below: to send it sends the data, to share it shares the data; and whoever has
// a guard gets at the mutex.
unsafe impl<T: ?Sized + Send> Send for MutexGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for MutexGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Send for OwnedMutexGuard<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedMutexGuard<T> {}
// SAFETY: as above, less the mutex.
unsafe impl<T: ?Sized + Send> Send for MappedMutexGuard<'_, T> {}
// SAFETY: as above, less the mutex.
unsafe impl<T: ?Sized + Sync> Sync for MappedMutexGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send, U: ?Sized + Send> Send for OwnedMappedMutexGuard<T, U> {}
// SAFETY: as above.
unsafe impl<T, U> Sync for OwnedMappedMutexGuard<T, U>
where
    T: ?Sized + Send + Sync,
    U: ?Sized + Send + Sync,
{
}

guard!({'a, T: ?Sized} MutexGuard<'a, T> => T, &'a Mutex<T>, mut);
guard!({T: ?Sized} OwnedMutexGuard<T> => T, Arc<Mutex<T>>, mut);
guard!({'a, T: ?Sized} MappedMutexGuard<'a, T> => T, &'a Permits, mut);
guard!({T: ?Sized, U: ?Sized} OwnedMappedMutexGuard<T, U> => U, Arc<Mutex<T>>, mut);

impl<T: ?Sized> Lock for &Mutex<T> {
    #[inline]
    fn permits(&self) -> &Permits {
        &self.permits
    }
}

impl<T: ?Sized> Lock for Arc<Mutex<T>> {
    #[inline]
    fn permits(&self) -> &Permits {
        &self.permits
    }
}

impl<T> Mutex<T> {
    /// Creates a mutex that is not locked.
    #[inline]
    pub const fn new(t: T) -> Self {
        Self::create(None, t)
    }

    /// As [`tokio::sync::Mutex::const_new`]: as [`Mutex::new`].
    #[inline]
    pub const fn const_new(t: T) -> Self {
        Self::create(None, t)
    }

    /// The same with a name.
    #[inline]
    pub const fn named(name: &'static str, t: T) -> Self {
        Self::create(Some(name), t)
    }

    const fn create(name: Option<&'static str>, t: T) -> Self {
        Self {
            permits: Permits::new(name, 1),
            data: UnsafeCell::new(t),
        }
    }

    /// As [`tokio::sync::Mutex::into_inner`].
    #[inline]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// The name it was created with.
    pub const fn name(&self) -> Option<&'static str> {
        self.permits.name()
    }

    /// As [`tokio::sync::Mutex::lock`].
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        self.permits.take::<All>(WaitKind::Mutex).await;
        self.guard()
    }

    /// As [`tokio::sync::Mutex::lock_owned`].
    pub async fn lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        self.permits.take::<All>(WaitKind::Mutex).await;
        self.owned_guard()
    }

    /// As [`tokio::sync::Mutex::blocking_lock`].
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        self.permits.take_blocking::<All>(WaitKind::Mutex);
        self.guard()
    }

    /// As [`tokio::sync::Mutex::blocking_lock_owned`].
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        self.permits.take_blocking::<All>(WaitKind::Mutex);
        self.owned_guard()
    }

    /// As [`tokio::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// If it is locked.
    #[inline]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.permits.try_take::<All>()?;
        Ok(self.guard())
    }

    /// As [`tokio::sync::Mutex::try_lock_owned`].
    ///
    /// # Errors
    /// If it is locked.
    #[inline]
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        self.permits.try_take::<All>()?;
        Ok(self.owned_guard())
    }

    /// As [`tokio::sync::Mutex::get_mut`].
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The caller has locked it.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            held: Held::new(self, self.data()),
        }
    }

    /// The caller has locked it.
    #[inline]
    fn owned_guard(self: Arc<Self>) -> OwnedMutexGuard<T> {
        let data = self.data();
        OwnedMutexGuard {
            held: Held::new(self, data),
        }
    }

    #[inline]
    fn data(&self) -> NonNull<T> {
        // SAFETY: a pointer to a field is not null.
        unsafe { NonNull::new_unchecked(self.data.get()) }
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
        let mut shown = f.debug_struct("Mutex");
        match self.try_lock() {
            Ok(guard) => shown.field("data", &&*guard),
            Err(_) => shown.field("data", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// As [`tokio::sync::MutexGuard::map`].
    #[inline]
    pub fn map<U, F>(mut this: Self, f: F) -> MappedMutexGuard<'a, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        let data = f(&mut this).into();
        MappedMutexGuard::new(&Self::into_lock(this).permits, data)
    }

    /// As [`tokio::sync::MutexGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<U, F>(mut this: Self, f: F) -> Result<MappedMutexGuard<'a, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(MappedMutexGuard::new(&Self::into_lock(this).permits, data)),
            None => Err(this),
        }
    }

    /// As [`tokio::sync::MutexGuard::mutex`].
    #[inline]
    pub fn mutex(this: &Self) -> &'a Mutex<T> {
        this.held.lock()
    }
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    /// As [`tokio::sync::OwnedMutexGuard::map`].
    #[inline]
    pub fn map<U, F>(mut this: Self, f: F) -> OwnedMappedMutexGuard<T, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        let data = f(&mut this).into();
        OwnedMappedMutexGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::OwnedMutexGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<U, F>(mut this: Self, f: F) -> Result<OwnedMappedMutexGuard<T, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(OwnedMappedMutexGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }

    /// As [`tokio::sync::OwnedMutexGuard::mutex`].
    #[inline]
    pub fn mutex(this: &Self) -> &Arc<Mutex<T>> {
        this.held.lock()
    }
}

impl<'a, T: ?Sized> MappedMutexGuard<'a, T> {
    /// The caller has locked what the data is a part of.
    #[inline]
    fn new(permits: &'a Permits, data: NonNull<T>) -> Self {
        Self {
            held: Held::new(permits, data),
            _data: PhantomData,
        }
    }

    /// As [`tokio::sync::MappedMutexGuard::map`].
    #[inline]
    pub fn map<U, F>(mut this: Self, f: F) -> MappedMutexGuard<'a, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        let data = f(&mut this).into();
        MappedMutexGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::MappedMutexGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<U, F>(mut this: Self, f: F) -> Result<MappedMutexGuard<'a, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(MappedMutexGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }
}

impl<T: ?Sized, U: ?Sized> OwnedMappedMutexGuard<T, U> {
    /// The caller has locked what the data is a part of.
    #[inline]
    fn new(mutex: Arc<Mutex<T>>, data: NonNull<U>) -> Self {
        Self {
            held: Held::new(mutex, data),
            _data: PhantomData,
        }
    }

    /// As [`tokio::sync::OwnedMappedMutexGuard::map`].
    #[inline]
    pub fn map<S, F>(mut this: Self, f: F) -> OwnedMappedMutexGuard<T, S>
    where
        S: ?Sized,
        F: FnOnce(&mut U) -> &mut S,
    {
        let data = f(&mut this).into();
        OwnedMappedMutexGuard::new(Self::into_lock(this), data)
    }

    /// As [`tokio::sync::OwnedMappedMutexGuard::try_map`].
    ///
    /// # Errors
    /// If there is no such part.
    #[inline]
    pub fn try_map<S, F>(mut this: Self, f: F) -> Result<OwnedMappedMutexGuard<T, S>, Self>
    where
        S: ?Sized,
        F: FnOnce(&mut U) -> Option<&mut S>,
    {
        match f(&mut this).map(NonNull::from) {
            Some(data) => Ok(OwnedMappedMutexGuard::new(Self::into_lock(this), data)),
            None => Err(this),
        }
    }
}
