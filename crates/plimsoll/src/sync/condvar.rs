//! Waiting for something to become true.

use std::fmt;
use std::sync::{self, LockResult, PoisonError};
use std::time::{Duration, Instant};

use super::MutexGuard;
use super::contended::{self, Key, keeps_its_frame, key_of};
use crate::contention::{self, Ended, WaitKind};

/// [`std::sync::Condvar`] for [`Mutex`](super::Mutex), whose waits are in the block profile.
///
/// A wait lasts until the last notification before the thread goes on. Nobody is blamed for it;
/// but it gives up the mutex, and is blamed for those who wait for that.
#[derive(Default)]
#[repr(C)]
pub struct Condvar {
    name: Option<&'static str>,
    inner: sync::Condvar,
}

/// Whether a wait of a [`Condvar`] ended because its time was up. The standard library's cannot be
/// made by anybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Creates one that nobody waits for.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self {
            name: None,
            inner: sync::Condvar::new(),
        }
    }

    /// The same with a name.
    #[must_use]
    #[inline]
    pub const fn named(name: &'static str) -> Self {
        Self {
            name: Some(name),
            inner: sync::Condvar::new(),
        }
    }

    /// The name it was created with.
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// As [`std::sync::Condvar::wait`].
    ///
    /// # Errors
    /// If the mutex is poisoned; it is locked even so.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (inner, mutex) = guard.into_parts();
        let result = if contention::is_on() {
            let locked = contended::release_and_wait(
                contention::release_key,
                mutex,
                WaitKind::Condvar,
                Key::of(self, self.name),
                || self.inner.wait(inner),
                |_| Ended::Woken,
            );
            keeps_its_frame();
            locked
        } else {
            self.inner.wait(inner)
        };
        match result {
            Ok(inner) => Ok(MutexGuard::from_parts(inner, mutex)),
            Err(poisoned) => Err(PoisonError::new(MutexGuard::from_parts(
                poisoned.into_inner(),
                mutex,
            ))),
        }
    }

    /// As [`std::sync::Condvar::wait_while`].
    ///
    /// # Errors
    /// If the mutex is poisoned; it is locked even so.
    pub fn wait_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// As [`std::sync::Condvar::wait_timeout`].
    ///
    /// # Errors
    /// If the mutex is poisoned; it is locked even so.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        dur: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (inner, mutex) = guard.into_parts();
        let wait = || match self.inner.wait_timeout(inner, dur) {
            Ok((inner, result)) => (inner, result.timed_out(), false),
            Err(poisoned) => {
                let (inner, result) = poisoned.into_inner();
                (inner, result.timed_out(), true)
            }
        };
        let (inner, timed_out, is_poisoned) = if contention::is_on() {
            let waited = contended::release_and_wait(
                contention::release_key,
                mutex,
                WaitKind::Condvar,
                Key::of(self, self.name),
                wait,
                |&(_, timed_out, _)| {
                    if timed_out {
                        Ended::TimedOut
                    } else {
                        Ended::Woken
                    }
                },
            );
            keeps_its_frame();
            waited
        } else {
            wait()
        };
        let result = (
            MutexGuard::from_parts(inner, mutex),
            WaitTimeoutResult(timed_out),
        );
        if is_poisoned {
            Err(PoisonError::new(result))
        } else {
            Ok(result)
        }
    }

    /// As [`std::sync::Condvar::wait_timeout_while`].
    ///
    /// # Errors
    /// If the mutex is poisoned; it is locked even so.
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        dur: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let start = Instant::now();
        while condition(&mut *guard) {
            let Some(left) = dur.checked_sub(start.elapsed()) else {
                return Ok((guard, WaitTimeoutResult(true)));
            };
            guard = self.wait_timeout(guard, left)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// As [`std::sync::Condvar::notify_one`].
    #[inline]
    pub fn notify_one(&self) {
        contended::wake(key_of(self), || self.inner.notify_one());
    }

    /// As [`std::sync::Condvar::notify_all`].
    #[inline]
    pub fn notify_all(&self) {
        contended::wake(key_of(self), || self.inner.notify_all());
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
