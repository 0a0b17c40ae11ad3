//! A condition variable.

use std::fmt;
use std::sync::{self, LockResult};
use std::time::{Duration, Instant};

use super::MutexGuard;
use super::contended::{self, Key, keeps_its_frame, key_of};
use super::results;
use crate::contention::{self, Ended, WaitKind};
use plimsoll_tasks::recording;

/// A [`std::sync::Condvar`] for [`Mutex`](super::Mutex), whose waits are in the block profile.
///
/// A wait lasts until the last notification before the thread continues, and no thread is charged
/// for it. It releases the mutex, and is charged for the waiters of the mutex.
#[derive(Default)]
#[repr(C)]
pub struct Condvar {
    name: Option<&'static str>,
    inner: sync::Condvar,
}

/// Whether a wait of a [`Condvar`] timed out. A separate type, because the standard library's has
/// no public constructor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait timed out.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self {
            name: None,
            inner: sync::Condvar::new(),
        }
    }

    /// Creates a condition variable with a name.
    #[must_use]
    #[inline]
    pub const fn named(name: &'static str) -> Self {
        Self {
            name: Some(name),
            inner: sync::Condvar::new(),
        }
    }

    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// Behaves like [`std::sync::Condvar::wait`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned; the mutex is locked nevertheless.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (inner, mutex) = guard.into_parts();
        let result = if recording::is_on() {
            let locked = contended::release_and_wait(
                contention::release_key,
                mutex,
                WaitKind::Condvar,
                Key::new(self, self.name),
                || self.inner.wait(inner),
                |_| Ended::Woken,
            );
            keeps_its_frame();
            locked
        } else {
            self.inner.wait(inner)
        };
        results::map(result, |inner| MutexGuard::from_parts(inner, mutex))
    }

    /// Behaves like [`std::sync::Condvar::wait_while`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned; the mutex is locked nevertheless.
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

    /// Behaves like [`std::sync::Condvar::wait_timeout`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned; the mutex is locked nevertheless.
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
        let (inner, timed_out, is_poisoned) = if recording::is_on() {
            let waited = contended::release_and_wait(
                contention::release_key,
                mutex,
                WaitKind::Condvar,
                Key::new(self, self.name),
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
        results::from_parts(result, is_poisoned)
    }

    /// Behaves like [`std::sync::Condvar::wait_timeout_while`].
    ///
    /// # Errors
    /// Fails if the mutex is poisoned; the mutex is locked nevertheless.
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

    /// Behaves like [`std::sync::Condvar::notify_one`].
    #[inline]
    pub fn notify_one(&self) {
        contended::wake(key_of(self), || self.inner.notify_one());
    }

    /// Behaves like [`std::sync::Condvar::notify_all`].
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
