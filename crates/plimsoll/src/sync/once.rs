//! What is done once, however many want it.

use std::fmt;
use std::sync::{self, OnceState};

use super::contended::{self, keeps_its_frame, key_of};
use crate::contention::{self, WaitKind};

/// [`std::sync::Once`], whose waits are in the block profile: those of threads that wait until
/// another has done it.
#[repr(C, align(8))]
pub struct Once {
    inner: sync::Once,
}

impl Once {
    /// Creates one whose work is not done.
    #[must_use]
    #[inline]
    #[allow(
        clippy::new_without_default,
        reason = "the standard library's has none"
    )]
    pub const fn new() -> Self {
        Self {
            inner: sync::Once::new(),
        }
    }

    /// As [`std::sync::Once::call_once`].
    #[inline]
    #[track_caller]
    pub fn call_once<F>(&self, f: F)
    where
        F: FnOnce(),
    {
        if self.inner.is_completed() {
            return;
        }
        if contention::is_on() {
            let key = key_of(self);
            contended::call(WaitKind::Once, key, |started| {
                self.inner.call_once(|| started.run(f));
            });
            keeps_its_frame();
        } else {
            self.inner.call_once(f);
        }
    }

    /// As [`std::sync::Once::call_once_force`].
    #[inline]
    pub fn call_once_force<F>(&self, f: F)
    where
        F: FnOnce(&OnceState),
    {
        if self.inner.is_completed() {
            return;
        }
        if contention::is_on() {
            let key = key_of(self);
            contended::call(WaitKind::Once, key, |started| {
                self.inner.call_once_force(|state| started.run(|| f(state)));
            });
            keeps_its_frame();
        } else {
            self.inner.call_once_force(f);
        }
    }

    /// As [`std::sync::Once::is_completed`].
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.inner.is_completed()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
