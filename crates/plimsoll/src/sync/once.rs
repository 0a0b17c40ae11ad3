//! What is done once, however many want it.

use std::fmt;
use std::sync::{self, OnceState};

use super::contended::{self, Doing, keeps_its_frame};
use crate::contention::holder::{self, Holder};
use crate::contention::{self, WaitKind};

/// [`std::sync::Once`], whose waits are in the block profile: those of threads that wait until
/// another has done it.
#[repr(C)]
pub struct Once {
    /// Who is doing it, which nobody else can do meanwhile: as with a lock. Its address is the
    /// key.
    holder: Holder,
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
            holder: Holder::nobody(),
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
            contended::call(WaitKind::Once, &self.holder, |started| {
                self.inner.call_once(|| started.run(f));
            });
            keeps_its_frame();
        } else {
            let waiting = holder::waiting(&self.holder, None);
            self.inner.call_once(|| {
                drop(waiting);
                let _doing = Doing::begin(&self.holder);
                f();
            });
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
            contended::call(WaitKind::Once, &self.holder, |started| {
                self.inner.call_once_force(|state| started.run(|| f(state)));
            });
            keeps_its_frame();
        } else {
            let waiting = holder::waiting(&self.holder, None);
            self.inner.call_once_force(|state| {
                drop(waiting);
                let _doing = Doing::begin(&self.holder);
                f(state);
            });
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// While waits are recorded, and while they are not.
    #[test]
    fn who_does_it_is_its_holder_until_that_is_over() {
        for fraction in [1, 0] {
            let before = contention::set_mutex_fraction(fraction);
            let holder = |once: &Once| format!("{:?}", once.holder);
            let once = Once::new();
            let nobody = holder(&once);
            let panics = || -> () {
                assert_ne!(holder(&once), nobody);
                std::panic::resume_unwind(Box::new(()));
            };
            catch_unwind(AssertUnwindSafe(|| once.call_once(panics))).unwrap_err();
            assert_eq!(holder(&once), nobody, "{fraction}");
            once.call_once_force(|_| assert_ne!(holder(&once), nobody));
            assert_eq!(holder(&once), nobody, "{fraction}");
            contention::set_mutex_fraction(before);
        }
    }
}
