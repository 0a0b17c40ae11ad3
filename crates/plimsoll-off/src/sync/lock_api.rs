//! Raw locks of `lock_api` around others, whose names are not kept.

use ::lock_api as inner;

#[derive(Debug)]
pub struct RawMutex<R>(R);

#[derive(Debug)]
pub struct RawRwLock<R>(R);

pub trait Named {
    fn name(&self) -> Option<&'static str>;
}

/// Implements traits of `lock_api` for a raw lock.
macro_rules! raw {
    ($raw:ident: $($trait:ident {
        $(const $init:ident;)?
        $(type $assoc:ident;)*
        $(fn $safe:ident($($arg:ident: $of:ty)?) $(-> $result:ty)?;)*
        $(unsafe fn $unsafe:ident($($unsafe_arg:ident: $unsafe_of:ty)?) $(-> $unsafe_result:ty)?;)*
    })+) => {$(
        // SAFETY: the wrapped lock does all that the trait requires.
        unsafe impl<R: inner::$trait> inner::$trait for $raw<R> {
            $(
                #[allow(clippy::declare_interior_mutable_const)]
                const $init: Self = Self(R::$init);
            )?
            $(type $assoc = R::$assoc;)*
            $(
                #[inline]
                fn $safe(&self $(, $arg: $of)?) $(-> $result)? {
                    self.0.$safe($($arg)?)
                }
            )*
            $(
                #[inline]
                unsafe fn $unsafe(&self $(, $unsafe_arg: $unsafe_of)?) $(-> $unsafe_result)? {
                    // SAFETY: the wrapped lock requires of the caller what this one does.
                    unsafe { self.0.$unsafe($($unsafe_arg)?) }
                }
            )*
        }
    )+

        impl<R: inner::$raw> $raw<R> {
            #[must_use]
            #[inline]
            pub const fn named(_: &'static str) -> Self {
                Self(R::INIT)
            }

            #[inline]
            pub const fn name(&self) -> Option<&'static str> {
                None
            }
        }
    };
}

raw! { RawMutex:
    RawMutex {
        const INIT;
        type GuardMarker;
        fn lock();
        fn try_lock() -> bool;
        fn is_locked() -> bool;
        unsafe fn unlock();
    }
    RawMutexFair {
        unsafe fn unlock_fair();
        unsafe fn bump();
    }
    RawMutexTimed {
        type Duration;
        type Instant;
        fn try_lock_for(timeout: R::Duration) -> bool;
        fn try_lock_until(timeout: R::Instant) -> bool;
    }
}

raw! { RawRwLock:
    RawRwLock {
        const INIT;
        type GuardMarker;
        fn lock_shared();
        fn try_lock_shared() -> bool;
        fn lock_exclusive();
        fn try_lock_exclusive() -> bool;
        fn is_locked() -> bool;
        fn is_locked_exclusive() -> bool;
        unsafe fn unlock_shared();
        unsafe fn unlock_exclusive();
    }
    RawRwLockFair {
        unsafe fn unlock_shared_fair();
        unsafe fn unlock_exclusive_fair();
        unsafe fn bump_shared();
        unsafe fn bump_exclusive();
    }
    RawRwLockDowngrade {
        unsafe fn downgrade();
    }
    RawRwLockTimed {
        type Duration;
        type Instant;
        fn try_lock_shared_for(timeout: R::Duration) -> bool;
        fn try_lock_shared_until(timeout: R::Instant) -> bool;
        fn try_lock_exclusive_for(timeout: R::Duration) -> bool;
        fn try_lock_exclusive_until(timeout: R::Instant) -> bool;
    }
    RawRwLockRecursive {
        fn lock_shared_recursive();
        fn try_lock_shared_recursive() -> bool;
    }
    RawRwLockRecursiveTimed {
        fn try_lock_shared_recursive_for(timeout: R::Duration) -> bool;
        fn try_lock_shared_recursive_until(timeout: R::Instant) -> bool;
    }
    RawRwLockUpgrade {
        fn lock_upgradable();
        fn try_lock_upgradable() -> bool;
        unsafe fn unlock_upgradable();
        unsafe fn upgrade();
        unsafe fn try_upgrade() -> bool;
    }
    RawRwLockUpgradeFair {
        unsafe fn unlock_upgradable_fair();
        unsafe fn bump_upgradable();
    }
    RawRwLockUpgradeDowngrade {
        unsafe fn downgrade_upgradable();
        unsafe fn downgrade_to_upgradable();
    }
    RawRwLockUpgradeTimed {
        fn try_lock_upgradable_for(timeout: R::Duration) -> bool;
        fn try_lock_upgradable_until(timeout: R::Instant) -> bool;
        unsafe fn try_upgrade_for(timeout: R::Duration) -> bool;
        unsafe fn try_upgrade_until(timeout: R::Instant) -> bool;
    }
}

impl<R: inner::RawMutex, T: ?Sized> Named for inner::Mutex<RawMutex<R>, T> {
    #[inline]
    fn name(&self) -> Option<&'static str> {
        None
    }
}

impl<R: inner::RawRwLock, T: ?Sized> Named for inner::RwLock<RawRwLock<R>, T> {
    #[inline]
    fn name(&self) -> Option<&'static str> {
        None
    }
}
