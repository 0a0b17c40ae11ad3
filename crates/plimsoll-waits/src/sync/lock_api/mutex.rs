//! A raw mutex.

use ::lock_api::{GuardNoSend, RawMutex as Raw, RawMutexFair, RawMutexTimed};

use super::in_time;
use crate::contention::{self, Ended, WaitKind};
use crate::sync::contended::{self, keeps_its_frame};
use crate::sync::identity::Identity;
use plimsoll_tasks::recording;

/// A raw mutex that wraps another, such as `parking_lot::RawMutex`.
#[derive(Debug)]
#[repr(C)]
pub struct RawMutex<R> {
    identity: Identity,
    inner: R,
}

impl<R: Raw> RawMutex<R> {
    /// Creates a raw mutex with a name, for
    /// [`lock_api::Mutex::from_raw`](::lock_api::Mutex::from_raw).
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self {
            identity: Identity::new(Some(name)),
            inner: R::INIT,
        }
    }

    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.identity.name
    }

    /// Locks the mutex while anything is recorded, or after a report of deadlocks was requested.
    #[cold]
    #[inline(never)]
    fn lock_noted(&self) {
        if !self.inner.try_lock() {
            let block = || self.inner.lock();
            if stays_with_its_thread::<R::GuardMarker>() {
                contended::wait_for_lock(WaitKind::Mutex, &self.identity, block);
            } else {
                contended::wait(WaitKind::Mutex, &self.identity, block, |()| Ended::Acquired);
            }
            keeps_its_frame();
        }
        self.identity.holder.note();
    }

    /// Notes the owner after a successful attempt to lock, and returns the result of the attempt.
    #[inline]
    fn taken_if(&self, locked: bool) -> bool {
        if locked {
            self.identity.holder.taken();
        }
        locked
    }
}

/// Returns whether guards with this marker stay with the thread that locked. Only then does that
/// thread hold the lock while it waits.
fn stays_with_its_thread<M>() -> bool {
    std::any::type_name::<M>() == std::any::type_name::<GuardNoSend>()
}

/// Calls an unlocking method of the inner lock, which the current thread holds.
macro_rules! release {
    ($self:ident.$unlock:ident) => {{
        // SAFETY: the contract of `RawMutex::unlock`, under which this runs, requires that this
        // context holds the lock. The inner lock requires the same.
        let unlock = || unsafe { $self.inner.$unlock() };
        // SAFETY: by the contract of `RawMutex`, only the owner of the lock calls `unlock`.
        if unsafe { $self.identity.holder.is_noted() } {
            contended::release_noted(&$self.identity, unlock);
            keeps_its_frame();
        } else {
            unlock();
        }
    }};
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: Raw> Raw for RawMutex<R> {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait requires a constant as constructor"
    )]
    const INIT: Self = Self {
        identity: Identity::new(None),
        inner: R::INIT,
    };

    type GuardMarker = R::GuardMarker;

    #[inline]
    fn lock(&self) {
        if recording::notes_owners() {
            self.lock_noted();
            keeps_its_frame();
        } else {
            self.inner.lock();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.taken_if(self.inner.try_lock())
    }

    #[inline]
    unsafe fn unlock(&self) {
        release!(self.unlock);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawMutexFair> RawMutexFair for RawMutex<R> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        release!(self.unlock_fair);
    }

    #[inline]
    unsafe fn bump(&self) {
        // SAFETY: the contract of `RawMutexFair::bump`, under which this runs, requires that this
        // context holds the lock. The inner lock requires the same.
        let bump = || unsafe { self.inner.bump() };
        self.identity.holder.given_up();
        if recording::is_on() {
            let (key, ended) = (&self.identity, |(): &()| Ended::Acquired);
            let blame = contention::release_key;
            contended::release_and_wait(blame, key, WaitKind::Mutex, key, bump, ended);
            keeps_its_frame();
        } else {
            bump();
        }
        self.identity.holder.taken();
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawMutexTimed> RawMutexTimed for RawMutex<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    #[inline]
    fn try_lock_for(&self, timeout: R::Duration) -> bool {
        let locked = self.inner.try_lock() || {
            let block = || self.inner.try_lock_for(timeout);
            let locked = contended::wait(WaitKind::Mutex, &self.identity, block, in_time);
            keeps_its_frame();
            locked
        };
        self.taken_if(locked)
    }

    #[inline]
    fn try_lock_until(&self, timeout: R::Instant) -> bool {
        let locked = self.inner.try_lock() || {
            let block = || self.inner.try_lock_until(timeout);
            let locked = contended::wait(WaitKind::Mutex, &self.identity, block, in_time);
            keeps_its_frame();
            locked
        };
        self.taken_if(locked)
    }
}
