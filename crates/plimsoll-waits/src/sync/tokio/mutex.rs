//! A mutex for tasks.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use tokio::sync::TryLockError;

use super::guards::guard;
use super::permits::{All, Held, Lock, Permits};
use crate::contention::WaitKind;

/// A [`tokio::sync::Mutex`] whose waits are in the profiles.
pub struct Mutex<T: ?Sized> {
    permits: Permits,
    data: UnsafeCell<T>,
}

/// Counterpart of [`tokio::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held<&'a Mutex<T>, All, T>,
}

/// Counterpart of [`tokio::sync::OwnedMutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard<T: ?Sized> {
    held: Held<Arc<Mutex<T>>, All, T>,
}

// SAFETY: only the owner of the lock uses the data, so one thread at a time does. It may be a
// different thread than the one that created or drops the data, so `T` is `Send`.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: only the owner of the lock uses the data, so sharing the mutex sends the data between
// threads. The impls for guards below state the conditions for sharing guards.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

// SAFETY: a guard is a mutable reference to the data, and a shared or owning one to the mutex. For
// this and the following types: sending a guard sends the data, and sharing a guard shares the
// data. The owner of a guard can also reach the mutex.
unsafe impl<T: ?Sized + Send> Send for MutexGuard<'_, T> {}
// SAFETY: sharing the guard shares the data; `T` is `Send` for the mutex, which its owner can
// reach.
unsafe impl<T: ?Sized + Send + Sync> Sync for MutexGuard<'_, T> {}
// SAFETY: sending the guard sends the data and a reference to the mutex, which requires that `T` is
// `Send`.
unsafe impl<T: ?Sized + Send> Send for OwnedMutexGuard<T> {}
// SAFETY: sharing the guard shares the data; `T` is `Send` for the mutex, which its owner can
// reach.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedMutexGuard<T> {}

guard!({'a, T: ?Sized} MutexGuard<'a, T>, mut);
guard!({T: ?Sized} OwnedMutexGuard<T>, mut);

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
    /// Creates an unlocked mutex.
    #[inline]
    pub const fn new(t: T) -> Self {
        Self::create(None, t)
    }

    /// Same as [`Mutex::new`]; counterpart of [`tokio::sync::Mutex::const_new`].
    #[inline]
    pub const fn const_new(t: T) -> Self {
        Self::create(None, t)
    }

    /// Creates an unlocked mutex with a name.
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

    /// Behaves like [`tokio::sync::Mutex::into_inner`].
    #[inline]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.permits.name()
    }

    /// Behaves like [`tokio::sync::Mutex::lock`].
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        self.permits.take::<All>(WaitKind::Mutex).await;
        self.guard()
    }

    /// Behaves like [`tokio::sync::Mutex::lock_owned`].
    pub async fn lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        self.permits.take::<All>(WaitKind::Mutex).await;
        self.owned_guard()
    }

    /// Behaves like [`tokio::sync::Mutex::blocking_lock`].
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        self.permits.take_blocking::<All>(WaitKind::Mutex);
        self.guard()
    }

    /// Behaves like [`tokio::sync::Mutex::blocking_lock_owned`].
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        self.permits.take_blocking::<All>(WaitKind::Mutex);
        self.owned_guard()
    }

    /// Behaves like [`tokio::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// Fails if the mutex is locked.
    #[inline]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.permits.try_take::<All>()?;
        Ok(self.guard())
    }

    /// Behaves like [`tokio::sync::Mutex::try_lock_owned`].
    ///
    /// # Errors
    /// Fails if the mutex is locked.
    #[inline]
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        self.permits.try_take::<All>()?;
        Ok(self.owned_guard())
    }

    /// Behaves like [`tokio::sync::Mutex::get_mut`].
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Returns a guard. The caller must have locked the mutex.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            held: Held::new(self, self.data()),
        }
    }

    /// Returns a guard. The caller must have locked the mutex.
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
    /// Behaves like [`tokio::sync::MutexGuard::mutex`].
    #[inline]
    pub fn mutex(this: &Self) -> &'a Mutex<T> {
        this.held.lock()
    }
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    /// Behaves like [`tokio::sync::OwnedMutexGuard::mutex`].
    #[inline]
    pub fn mutex(this: &Self) -> &Arc<Mutex<T>> {
        this.held.lock()
    }
}
