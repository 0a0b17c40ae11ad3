//! What the locks here are made of: tokio's semaphore, as tokio's own are; and what a guard has of
//! a lock.

use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, TryLockError};

use super::waiting::{ThreadWait, Waiting, at_once};
use crate::contention::WaitKind;
use crate::contention::awaited::Account;
use crate::stack::{Registers, Start};
use crate::sync::contended::keeps_its_frame;

/// A lock without what it protects: who has one of its permits may read that, who has all of them
/// may write to it.
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

    /// Takes a share. It is [given up](Permits::give_up) when it is not needed any more.
    #[allow(
        clippy::manual_async_fn,
        reason = "the future of an async function has each argument twice"
    )]
    pub(super) fn take<S: Share>(&self, kind: WaitKind) -> impl Future<Output = ()> {
        async move {
            if !at_once(|| self.is_there::<S>()).await {
                let acquired = self.semaphore.acquire_many(S::of(self));
                taken(Waiting::new(kind, &self.account, acquired).await);
                self.note_owner::<S>();
            }
        }
    }

    /// The caller has taken that share.
    #[inline]
    fn note_owner<S: Share>(&self) {
        if S::IS_ALL {
            self.account.taken();
        }
    }

    /// Takes a share if it is there.
    #[inline]
    fn is_there<S: Share>(&self) -> bool {
        match self.semaphore.try_acquire_many(S::of(self)) {
            Ok(permits) => {
                mem::forget(permits);
                self.note_owner::<S>();
                true
            }
            Err(_) => false,
        }
    }

    /// The same, by a thread.
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub(super) fn take_blocking<S: Share>(&self, kind: WaitKind) {
        let wait = ThreadWait::begin(kind, &self.account);
        taken(self.semaphore.blocking_acquire_many(S::of(self)));
        self.note_owner::<S>();
        wait.end();
    }

    /// The same, if it is there.
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
        self.add(S::of(self));
    }

    /// The same, of which the caller, who has all, keeps one.
    #[inline]
    pub(super) fn downgraded(&self) -> &Self {
        self.add(self.all - 1);
        self
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

    /// The same, and is blamed for those who wait.
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

/// Whoever calls it has the share.
#[inline]
fn taken(acquired: Acquired<'_>) {
    // As its own `forget`, which gives back no permits first.
    mem::forget(acquired.expect("it is never closed"));
}

/// Tokio's error, which can be had from tokio only.
#[cold]
fn would_block() -> TryLockError {
    let mutex = tokio::sync::Mutex::const_new(());
    let locked = mutex.try_lock();
    let error = mutex.try_lock().expect_err("it is locked");
    drop(locked);
    error
}

/// How many permits somebody has.
pub(super) trait Share {
    const IS_ALL: bool;

    fn of(permits: &Permits) -> u32;
}

/// One of them.
pub(super) struct One;

/// All of them.
pub(super) struct All;

impl Share for One {
    const IS_ALL: bool = false;

    #[inline]
    fn of(_permits: &Permits) -> u32 {
        1
    }
}

impl Share for All {
    const IS_ALL: bool = true;

    #[inline]
    fn of(permits: &Permits) -> u32 {
        permits.all
    }
}

/// What leads to a lock: a reference, or an `Arc`.
pub(super) trait Lock {
    fn permits(&self) -> &Permits;
}

impl Lock for &Permits {
    #[inline]
    fn permits(&self) -> &Permits {
        self
    }
}

/// A share of a lock, and what of the protected data may be used as long as one has it: what all
/// guards are. They give it up when they are dropped.
pub(super) struct Held<L: Lock, S: Share, T: ?Sized> {
    lock: L,
    data: NonNull<T>,
    share: PhantomData<S>,
}

impl<L: Lock, S: Share, T: ?Sized> Held<L, S, T> {
    /// The caller has that share of the lock.
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

    /// The data is not used any more.
    #[inline]
    pub(super) fn give_up(&self) {
        self.lock.permits().give_up::<S>();
    }

    /// The lock, of which the caller has the share.
    #[inline]
    pub(super) fn into_lock(self) -> L {
        self.lock
    }
}
