//! The basis of the locks here: tokio's semaphore, which is also the basis of tokio's own locks;
//! and the share of a lock that a guard owns.

use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, TryLockError};

use super::waiting::{ThreadWait, Waiting, at_once};
use crate::contention::WaitKind;
use crate::contention::awaited::Account;
use crate::sync::contended::keeps_its_frame;
use plimsoll_core::stack::{Registers, Start};

/// A lock without its data. The owner of one permit may read the data; the owner of all permits may
/// write it.
pub(super) struct Permits {
    all: u32,
    account: Account,
    semaphore: Semaphore,
}

impl Permits {
    pub(super) const fn new(name: Option<&'static str>, all: u32) -> Self {
        Self {
            all,
            account: Account::new(name),
            semaphore: Semaphore::const_new(all as usize),
        }
    }

    pub(super) const fn name(&self) -> Option<&'static str> {
        self.account.given_name()
    }

    /// Takes a share; waits until it is available. Return it by [`give_up`](Permits::give_up).
    #[allow(
        clippy::manual_async_fn,
        reason = "the future of an async function stores each argument twice"
    )]
    pub(super) fn take<S: Share>(&self, kind: WaitKind) -> impl Future<Output = ()> {
        async move {
            if !at_once(|| self.is_there::<S>()).await {
                let acquired = self.semaphore.acquire_many(S::count(self));
                taken(Waiting::new(kind, &self.account, acquired).await);
                self.note_owner::<S>();
            }
        }
    }

    /// Notes the owner, if the share that was taken is all of the lock.
    #[inline]
    fn note_owner<S: Share>(&self) {
        if S::IS_ALL {
            self.account.taken();
        }
    }

    /// Takes a share, if it is available.
    #[inline]
    fn is_there<S: Share>(&self) -> bool {
        match self.semaphore.try_acquire_many(S::count(self)) {
            Ok(permits) => {
                mem::forget(permits);
                self.note_owner::<S>();
                true
            }
            Err(_) => false,
        }
    }

    /// Takes a share; blocks the thread until it is available.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub(super) fn take_blocking<S: Share>(&self, kind: WaitKind) {
        let wait = ThreadWait::begin(kind, &self.account);
        taken(self.semaphore.blocking_acquire_many(S::count(self)));
        self.note_owner::<S>();
        wait.end();
    }

    /// Takes a share if it is available; fails otherwise.
    #[inline]
    pub(super) fn try_take<S: Share>(&self) -> Result<(), TryLockError> {
        if self.is_there::<S>() {
            Ok(())
        } else {
            Err(would_block())
        }
    }

    #[inline]
    pub(super) fn give_up<S: Share>(&self) {
        self.add(S::count(self));
    }

    /// Returns all permits but one; the caller must own all of them.
    #[inline]
    pub(super) fn downgrade(&self) {
        self.add(self.all - 1);
    }

    #[inline]
    fn add(&self, permits: u32) {
        if self.account.is_in_use() {
            self.add_for_others(permits);
            keeps_its_frame();
        } else {
            self.semaphore.add_permits(permits as usize);
        }
    }

    /// Adds permits, and records the charge for the waiters.
    #[cold]
    #[inline(never)]
    fn add_for_others(&self, permits: u32) {
        let stack = Start::Here(Registers::here());
        let release = self.account.release();
        self.semaphore.add_permits(permits as usize);
        if let Some(release) = release {
            release.record_named(self.name(), stack);
        }
    }
}

type Acquired<'a> = Result<SemaphorePermit<'a>, AcquireError>;

/// Gives the caller the share that tokio's permit stands for.
#[inline]
fn taken(acquired: Acquired<'_>) {
    // Not the permit's own `forget`, whose drop would first return zero permits.
    mem::forget(acquired.expect("it is never closed"));
}

/// Returns tokio's error, which only tokio can create.
#[cold]
fn would_block() -> TryLockError {
    let mutex = tokio::sync::Mutex::const_new(());
    let locked = mutex.try_lock();
    let error = mutex.try_lock().expect_err("it is locked");
    drop(locked);
    error
}

/// A number of permits that a guard owns.
pub(super) trait Share {
    const IS_ALL: bool;

    fn count(permits: &Permits) -> u32;
}

/// One permit.
pub(super) struct One;

/// All permits.
pub(super) struct All;

impl Share for One {
    const IS_ALL: bool = false;

    #[inline]
    fn count(_permits: &Permits) -> u32 {
        1
    }
}

impl Share for All {
    const IS_ALL: bool = true;

    #[inline]
    fn count(permits: &Permits) -> u32 {
        permits.all
    }
}

/// A handle of a lock: a reference to it or to its permits, or an `Arc`.
pub(super) trait Lock {
    fn permits(&self) -> &Permits;
}

impl Lock for &Permits {
    #[inline]
    fn permits(&self) -> &Permits {
        self
    }
}

/// The content of each guard: a share of a lock, and the data that it makes accessible. The guard
/// releases the share when it is dropped.
pub(super) struct Held<L: Lock, S: Share, T: ?Sized> {
    lock: L,
    data: NonNull<T>,
    share: PhantomData<S>,
}

impl<L: Lock, S: Share, T: ?Sized> Held<L, S, T> {
    /// Creates the content of a guard. The caller must have that share of the lock.
    #[inline]
    pub(super) fn new(lock: L, data: NonNull<T>) -> Self {
        Self {
            lock,
            data,
            share: PhantomData,
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> &L {
        &self.lock
    }

    #[inline]
    pub(super) fn data(&self) -> NonNull<T> {
        self.data
    }

    /// Releases the share; the data is not used any more.
    #[inline]
    pub(super) fn give_up(&self) {
        self.lock.permits().give_up::<S>();
    }
}
