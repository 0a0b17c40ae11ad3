//! The standard library's locks, conditions and channels. Those that can have a name are wrapped, and drop it; the others are
//! the standard library's.

use std::fmt;
use std::sync as inner;
use std::time::Duration;

/// A lock of `inner` that may be given a name.
macro_rules! lock {
    ($lock:ident, $new:ident, $into_inner:ty, $get_mut:ty) => {
        #[repr(transparent)]
        pub struct $lock<T: ?Sized>(inner::$lock<T>);

        impl<T> $lock<T> {
            #[inline]
            pub const fn new(t: T) -> Self {
                Self(inner::$lock::$new(t))
            }

            #[inline]
            pub const fn named(_: &'static str, t: T) -> Self {
                Self::new(t)
            }

            #[inline]
            pub fn into_inner(self) -> $into_inner {
                self.0.into_inner()
            }
        }

        impl<T: ?Sized> $lock<T> {
            #[inline]
            pub const fn name(&self) -> Option<&'static str> {
                None
            }

            #[inline]
            pub fn get_mut(&mut self) -> $get_mut {
                self.0.get_mut()
            }
        }

        impl<T> From<T> for $lock<T> {
            #[inline]
            fn from(t: T) -> Self {
                Self::new(t)
            }
        }

        impl<T: Default> Default for $lock<T> {
            #[inline]
            fn default() -> Self {
                Self::new(T::default())
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $lock<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Another type of `inner` that may be given a name.
macro_rules! named {
    ($type:ident, $new:ident($($arg:ident: $of:ty)?)) => {
        #[repr(transparent)]
        pub struct $type(inner::$type);

        impl $type {
            #[must_use]
            #[track_caller]
            #[inline]
            pub const fn new($($arg: $of)?) -> Self {
                Self(inner::$type::$new($($arg)?))
            }

            #[must_use]
            #[track_caller]
            #[inline]
            pub const fn named(_: &'static str $(, $arg: $of)?) -> Self {
                Self::new($($arg)?)
            }

            #[inline]
            pub const fn name(&self) -> Option<&'static str> {
                None
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Methods that call those of the wrapped type. Not by `Deref`: then `Mutex::is_poisoned(&mutex)` finds none.
macro_rules! forward {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident(&self $(, $arg:ident: $of:ty)*) $(-> $result:ty)?;
    )+) => {$(
        $(#[$attribute])*
        #[inline]
        pub fn $name(&self $(, $arg: $of)*) $(-> $result)? {
            self.0.$name($($arg),*)
        }
    )+};
}

/// Implements the traits of a guard, with `mut` at the end if the data may be written.
macro_rules! guard {
    ({$($generics:tt)*} $guard:ty) => {
        impl<$($generics)*> std::ops::Deref for $guard {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.0
            }
        }

        impl<$($generics)* + fmt::Debug> fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<$($generics)* + fmt::Display> fmt::Display for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
    ({$($generics:tt)*} $guard:ty, mut) => {
        guard!({$($generics)*} $guard);

        impl<$($generics)*> std::ops::DerefMut for $guard {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.0
            }
        }
    };
}

#[cfg(feature = "lock_api")]
pub mod lock_api;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use std::sync::{
    Arc, Barrier, BarrierWaitResult, LazyLock, LockResult, Once, OnceLock, OnceState, PoisonError,
    TryLockError, TryLockResult, WaitTimeoutResult, Weak, atomic, mpsc,
};

lock!(Mutex, new, LockResult<T>, LockResult<&mut T>);
lock!(RwLock, new, LockResult<T>, LockResult<&mut T>);
named!(Condvar, new());

// Not the standard library's own guards: with those, the compiler denies `let _ = mutex.lock()`.

#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized + 'a>(inner::MutexGuard<'a, T>);

#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a>(inner::RwLockReadGuard<'a, T>);

#[must_use = "if unused the RwLock will immediately unlock"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a>(inner::RwLockWriteGuard<'a, T>);

guard!({'a, T: ?Sized} MutexGuard<'a, T>, mut);
guard!({'a, T: ?Sized} RwLockReadGuard<'a, T>);
guard!({'a, T: ?Sized} RwLockWriteGuard<'a, T>, mut);

/// Wraps the guard in the result of a lock.
#[inline]
fn wrapped<G, W>(result: LockResult<G>, wrap: impl FnOnce(G) -> W) -> LockResult<W> {
    match result {
        Ok(guard) => Ok(wrap(guard)),
        Err(error) => Err(PoisonError::new(wrap(error.into_inner()))),
    }
}

/// The same for the result of an attempt.
#[inline]
fn try_wrapped<G, W>(result: TryLockResult<G>, wrap: impl FnOnce(G) -> W) -> TryLockResult<W> {
    match result {
        Ok(guard) => Ok(wrap(guard)),
        Err(TryLockError::Poisoned(error)) => Err(TryLockError::Poisoned(PoisonError::new(wrap(
            error.into_inner(),
        )))),
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        wrapped(self.0.lock(), MutexGuard)
    }

    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        try_wrapped(self.0.try_lock(), MutexGuard)
    }

    forward! {
        fn is_poisoned(&self) -> bool;
        fn clear_poison(&self);
    }
}

impl<T: ?Sized> RwLock<T> {
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        wrapped(self.0.read(), RwLockReadGuard)
    }

    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        try_wrapped(self.0.try_read(), RwLockReadGuard)
    }

    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        wrapped(self.0.write(), RwLockWriteGuard)
    }

    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        try_wrapped(self.0.try_write(), RwLockWriteGuard)
    }

    forward! {
        fn is_poisoned(&self) -> bool;
        fn clear_poison(&self);
    }
}

impl Default for Condvar {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    #[inline]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        wrapped(self.0.wait(guard.0), MutexGuard)
    }

    #[inline]
    pub fn wait_while<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        wrapped(self.0.wait_while(guard.0, condition), MutexGuard)
    }

    #[inline]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        dur: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        wrapped(self.0.wait_timeout(guard.0, dur), |(guard, result)| {
            (MutexGuard(guard), result)
        })
    }

    #[inline]
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        dur: Duration,
        condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let result = self.0.wait_timeout_while(guard.0, dur, condition);
        wrapped(result, |(guard, result)| (MutexGuard(guard), result))
    }

    forward! {
        fn notify_one(&self);
        fn notify_all(&self);
    }
}
