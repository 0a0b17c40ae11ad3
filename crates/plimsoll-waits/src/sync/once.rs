//! One-time initialization.

use std::fmt;
use std::sync::{self, OnceState};

use super::contended::{self, keeps_its_frame};
use crate::contention::WaitKind;
use crate::contention::holder::Holder;

/// A [`std::sync::Once`] whose waits are in the block profile: the waits of threads until another
/// thread has completed the call.
#[repr(C)]
pub struct Once {
    /// The thread that runs the call; no other thread can run it meanwhile, as with a lock. The
    /// address of this field is the key.
    holder: Holder,
    inner: sync::Once,
}

impl Once {
    /// Creates a `Once` that was not called yet.
    #[must_use]
    #[inline]
    #[allow(
        clippy::new_without_default,
        reason = "the standard library's has none"
    )]
    pub const fn new() -> Self {
        Self {
            holder: Holder::unowned(),
            inner: sync::Once::new(),
        }
    }

    /// Behaves like [`std::sync::Once::call_once`].
    #[inline]
    #[track_caller]
    pub fn call_once<F>(&self, f: F)
    where
        F: FnOnce(),
    {
        if self.inner.is_completed() {
            return;
        }
        // Out of line: a completed call then costs as much as the standard library's.
        contended::call(WaitKind::Once, &self.holder, |started| {
            self.inner.call_once(|| started.run(f));
        });
        keeps_its_frame();
    }

    /// Behaves like [`std::sync::Once::call_once_force`].
    #[inline]
    pub fn call_once_force<F>(&self, f: F)
    where
        F: FnOnce(&OnceState),
    {
        if self.inner.is_completed() {
            return;
        }
        contended::call(WaitKind::Once, &self.holder, |started| {
            self.inner.call_once_force(|state| started.run(|| f(state)));
        });
        keeps_its_frame();
    }

    /// Behaves like [`std::sync::Once::is_completed`].
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
    use crate::contention;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Both while waits are recorded and while they are not.
    #[test]
    fn the_running_thread_is_the_owner_until_it_is_done() {
        for fraction in [1, 0] {
            let before = contention::set_mutex_fraction(fraction);
            let holder = |once: &Once| format!("{:?}", once.holder);
            let once = Once::new();
            let unowned = holder(&once);
            let panics = || -> () {
                assert_ne!(holder(&once), unowned);
                std::panic::resume_unwind(Box::new(()));
            };
            catch_unwind(AssertUnwindSafe(|| once.call_once(panics))).unwrap_err();
            assert_eq!(holder(&once), unowned, "{fraction}");
            once.call_once_force(|_| assert_ne!(holder(&once), unowned));
            assert_eq!(holder(&once), unowned, "{fraction}");
            contention::set_mutex_fraction(before);
        }
    }
}
