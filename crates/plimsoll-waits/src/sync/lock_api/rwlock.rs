//! A raw readers-writer lock, with upgradable readers.

use ::lock_api::{
    RawRwLock as Raw, RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive,
    RawRwLockRecursiveTimed, RawRwLockTimed, RawRwLockUpgrade, RawRwLockUpgradeDowngrade,
    RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};

use super::in_time;
use crate::contention::{self, Ended, WaitKind};
use crate::sync::contended::{self, Key, keeps_its_frame};
use plimsoll_tasks::recording;

/// A raw readers-writer lock that wraps another, such as `parking_lot::RawRwLock`.
///
/// A release, whole or in part, is charged for all waiters. A reader's release is charged only for
/// waiting writers, unless it is the upgradable reader. An upgrade counts as a wait to write;
/// becoming the upgradable reader counts as a wait to read.
// The address of the first field is the lock's key: threads wait on that address for nothing else.
#[derive(Debug)]
#[repr(C)]
pub struct RawRwLock<R> {
    name: Option<&'static str>,
    inner: R,
}

impl<R: Raw> RawRwLock<R> {
    /// Creates a raw lock with a name, for
    /// [`lock_api::RwLock::from_raw`](::lock_api::RwLock::from_raw).
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self {
            name: Some(name),
            inner: R::INIT,
        }
    }

    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }
}

/// Calls a locking method of the inner lock, if another method fails to take it without waiting.
macro_rules! wait {
    ($self:ident.$try_lock:ident(), $lock:ident, $kind:ident) => {
        if !$self.inner.$try_lock() {
            let (key, ended) = (Key::new($self, $self.name), |(): &()| Ended::Acquired);
            contended::wait(WaitKind::$kind, key, || $self.inner.$lock(), ended);
            keeps_its_frame();
        }
    };
    ($self:ident.$try_lock:ident(), $lock:ident($timeout:ident), $kind:ident) => {
        $self.inner.$try_lock() || {
            let block = || $self.inner.$lock($timeout);
            let locked =
                contended::wait(WaitKind::$kind, Key::new($self, $self.name), block, in_time);
            keeps_its_frame();
            locked
        }
    };
}

/// Calls a method of the inner lock that releases all or a part of the current thread's hold, and
/// records the charge that `$blame` computes.
macro_rules! release {
    ($self:ident.$unlock:ident, $blame:ident) => {{
        // SAFETY: the contract of the calling method of `RawRwLock` requires that this context
        // holds the lock in this mode. The inner lock requires the same.
        let unlock = || unsafe { $self.inner.$unlock() };
        if recording::is_on() {
            contended::release(contention::$blame, Key::new($self, $self.name), unlock);
            keeps_its_frame();
        } else {
            unlock();
        }
    }};
}

/// Calls a method of the inner lock that releases the current thread's hold and takes it again.
macro_rules! bump {
    ($self:ident.$bump:ident, $blame:ident, $kind:ident) => {{
        // SAFETY: the contract of the calling method of `RawRwLockFair` requires that this context
        // holds the lock in this mode. The inner lock requires the same.
        let bump = || unsafe { $self.inner.$bump() };
        if recording::is_on() {
            let (key, ended) = (Key::new($self, $self.name), |(): &()| Ended::Acquired);
            let blame = contention::$blame;
            contended::release_and_wait(blame, key, WaitKind::$kind, key, bump, ended);
            keeps_its_frame();
        } else {
            bump();
        }
    }};
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: Raw> Raw for RawRwLock<R> {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait requires a constant as constructor"
    )]
    const INIT: Self = Self {
        name: None,
        inner: R::INIT,
    };

    type GuardMarker = R::GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        wait!(self.try_lock_shared(), lock_shared, RwLockRead);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.inner.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        release!(self.unlock_shared, release_by_reader);
    }

    #[inline]
    fn lock_exclusive(&self) {
        wait!(self.try_lock_exclusive(), lock_exclusive, RwLockWrite);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.inner.try_lock_exclusive()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        release!(self.unlock_exclusive, release_key);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockFair> RawRwLockFair for RawRwLock<R> {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        release!(self.unlock_shared_fair, release_by_reader);
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self) {
        release!(self.unlock_exclusive_fair, release_key);
    }

    #[inline]
    unsafe fn bump_shared(&self) {
        bump!(self.bump_shared, release_by_reader, RwLockRead);
    }

    #[inline]
    unsafe fn bump_exclusive(&self) {
        bump!(self.bump_exclusive, release_key, RwLockWrite);
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockDowngrade> RawRwLockDowngrade for RawRwLock<R> {
    #[inline]
    unsafe fn downgrade(&self) {
        release!(self.downgrade, release_key);
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockTimed> RawRwLockTimed for RawRwLock<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: R::Duration) -> bool {
        wait!(
            self.try_lock_shared(),
            try_lock_shared_for(timeout),
            RwLockRead
        )
    }

    #[inline]
    fn try_lock_shared_until(&self, timeout: R::Instant) -> bool {
        wait!(
            self.try_lock_shared(),
            try_lock_shared_until(timeout),
            RwLockRead
        )
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: R::Duration) -> bool {
        wait!(
            self.try_lock_exclusive(),
            try_lock_exclusive_for(timeout),
            RwLockWrite
        )
    }

    #[inline]
    fn try_lock_exclusive_until(&self, timeout: R::Instant) -> bool {
        wait!(
            self.try_lock_exclusive(),
            try_lock_exclusive_until(timeout),
            RwLockWrite
        )
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockRecursive> RawRwLockRecursive for RawRwLock<R> {
    #[inline]
    fn lock_shared_recursive(&self) {
        wait!(
            self.try_lock_shared_recursive(),
            lock_shared_recursive,
            RwLockRead
        );
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.inner.try_lock_shared_recursive()
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockRecursiveTimed> RawRwLockRecursiveTimed for RawRwLock<R> {
    #[inline]
    fn try_lock_shared_recursive_for(&self, timeout: R::Duration) -> bool {
        wait!(
            self.try_lock_shared_recursive(),
            try_lock_shared_recursive_for(timeout),
            RwLockRead
        )
    }

    #[inline]
    fn try_lock_shared_recursive_until(&self, timeout: R::Instant) -> bool {
        wait!(
            self.try_lock_shared_recursive(),
            try_lock_shared_recursive_until(timeout),
            RwLockRead
        )
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockUpgrade> RawRwLockUpgrade for RawRwLock<R> {
    #[inline]
    fn lock_upgradable(&self) {
        wait!(self.try_lock_upgradable(), lock_upgradable, RwLockRead);
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.inner.try_lock_upgradable()
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        release!(self.unlock_upgradable, release_key);
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the contract of `RawRwLockUpgrade::upgrade` requires that this context holds the
        // lock upgradably. The inner lock requires the same; a failed attempt leaves the lock held.
        if unsafe { !self.inner.try_upgrade() } {
            let (key, ended) = (Key::new(self, self.name), |(): &()| Ended::Acquired);
            // SAFETY: this context holds the lock upgradably, as `upgrade` requires: the failed
            // attempt left it held.
            let upgrade = || unsafe { self.inner.upgrade() };
            contended::wait(WaitKind::RwLockWrite, key, upgrade, ended);
            keeps_its_frame();
        }
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the contract of `RawRwLockUpgrade::try_upgrade` requires that this context holds
        // the lock upgradably. The inner lock requires the same.
        unsafe { self.inner.try_upgrade() }
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockUpgradeFair> RawRwLockUpgradeFair for RawRwLock<R> {
    #[inline]
    unsafe fn unlock_upgradable_fair(&self) {
        release!(self.unlock_upgradable_fair, release_key);
    }

    #[inline]
    unsafe fn bump_upgradable(&self) {
        bump!(self.bump_upgradable, release_key, RwLockRead);
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockUpgradeDowngrade> RawRwLockUpgradeDowngrade for RawRwLock<R> {
    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        release!(self.downgrade_upgradable, release_key);
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self) {
        release!(self.downgrade_to_upgradable, release_key);
    }
}

// SAFETY: the inner lock, which is locked and unlocked together with this one, ensures exclusion.
unsafe impl<R: RawRwLockUpgradeTimed> RawRwLockUpgradeTimed for RawRwLock<R> {
    #[inline]
    fn try_lock_upgradable_for(&self, timeout: R::Duration) -> bool {
        wait!(
            self.try_lock_upgradable(),
            try_lock_upgradable_for(timeout),
            RwLockRead
        )
    }

    #[inline]
    fn try_lock_upgradable_until(&self, timeout: R::Instant) -> bool {
        wait!(
            self.try_lock_upgradable(),
            try_lock_upgradable_until(timeout),
            RwLockRead
        )
    }

    #[inline]
    unsafe fn try_upgrade_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: the contract of `RawRwLockUpgradeTimed` requires that this context holds the lock
        // upgradably. The inner lock requires the same; a failed attempt leaves the lock held.
        unsafe {
            self.inner.try_upgrade() || {
                let upgrade = || self.inner.try_upgrade_for(timeout);
                let upgraded = contended::wait(
                    WaitKind::RwLockWrite,
                    Key::new(self, self.name),
                    upgrade,
                    in_time,
                );
                keeps_its_frame();
                upgraded
            }
        }
    }

    #[inline]
    unsafe fn try_upgrade_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: the contract of `RawRwLockUpgradeTimed` requires that this context holds the lock
        // upgradably. The inner lock requires the same; a failed attempt leaves the lock held.
        unsafe {
            self.inner.try_upgrade() || {
                let upgrade = || self.inner.try_upgrade_until(timeout);
                let upgraded = contended::wait(
                    WaitKind::RwLockWrite,
                    Key::new(self, self.name),
                    upgrade,
                    in_time,
                );
                keeps_its_frame();
                upgraded
            }
        }
    }
}
