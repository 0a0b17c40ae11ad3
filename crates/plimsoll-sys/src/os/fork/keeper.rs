//! Members that keep a lock from before a fork until after it.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};

use super::{Member, Rank, SignalGuard, SignalMutex, join};
use crate::primitives::{AtomicBool, Ordering};

/// A guard that is kept across a fork.
struct GuardSlot<G>(UnsafeCell<Option<G>>);

// SAFETY: only the thread that forks uses it, between the beginning and the end of the fork.
unsafe impl<G> Sync for GuardSlot<G> {}

impl<G> GuardSlot<G> {
    const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    fn set(&self, guard: Option<G>) {
        // SAFETY: see `Sync`.
        unsafe { *self.0.get() = guard };
    }

    fn with(&self, work: impl FnOnce(&mut G)) {
        // SAFETY: see `Sync`.
        if let Some(guard) = unsafe { &mut *self.0.get() } {
            work(guard);
        }
    }
}

/// A member that keeps a lock which is a part of another type. It joins by [`join`].
pub struct Keeper<G: 'static> {
    rank: Rank,
    lock: fn() -> G,
    reset: fn(&mut G),
    guard: GuardSlot<G>,
}

impl<G> Keeper<G> {
    /// Creates a member that calls `lock` before a fork, and `reset` in the child.
    pub const fn new(rank: Rank, lock: fn() -> G, reset: fn(&mut G)) -> Self {
        Self {
            rank,
            lock,
            reset,
            guard: GuardSlot::new(),
        }
    }
}

impl<G> Member for Keeper<G> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn hold(&self) {
        self.guard.set(Some((self.lock)()));
    }

    fn release(&self) {
        self.guard.set(None);
    }

    fn reset(&self) {
        self.guard.with(self.reset);
    }
}

/// A static [`SignalMutex`] that the child of a fork finds free, with a whole value. It joins at its first use. Not
/// for hooks, and not in the program's allocator.
pub struct ForkLock<T: 'static> {
    rank: Rank,
    reset: fn(&mut T),
    has_joined: AtomicBool,
    mutex: SignalMutex<T>,
    guard: GuardSlot<SignalGuard<'static, T>>,
}

/// The access to the value of a [`ForkLock`].
pub struct ForkGuard<T: 'static> {
    value: SignalGuard<'static, T>,
    _order: Order,
}

impl<T: Send> ForkLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self::with_reset(rank, value, |_| ())
    }

    /// Creates an unlocked lock whose value is changed by `reset` in the child of a fork.
    pub const fn with_reset(rank: Rank, value: T, reset: fn(&mut T)) -> Self {
        Self {
            rank,
            reset,
            has_joined: AtomicBool::new(false),
            mutex: SignalMutex::new(value),
            guard: GuardSlot::new(),
        }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&'static self) -> ForkGuard<T> {
        if !self.has_joined.load(Ordering::Acquire) {
            self.join();
        }
        ForkGuard {
            _order: Order::enter(self.rank),
            value: self.mutex.lock(),
        }
    }

    #[cold]
    fn join(&'static self) {
        join(self);
        self.has_joined.store(true, Ordering::Release);
    }
}

impl<T: Send> Member for ForkLock<T> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn hold(&self) {
        // SAFETY: a member is static, by `join`.
        let this: &'static Self = unsafe { &*std::ptr::from_ref(self) };
        self.guard.set(Some(this.mutex.lock()));
    }

    fn release(&self) {
        self.guard.set(None);
    }

    fn reset(&self) {
        self.guard.with(|value| (self.reset)(value));
    }
}

impl<T> Deref for ForkGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ForkGuard<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Checks that a thread takes locks in the order of their ranks, where assertions are on.
struct Order(Rank);

thread_local! {
    /// A bit for each rank of which the thread holds a lock.
    static RANKS: Cell<u64> = const { Cell::new(0) };
}

impl Order {
    #[inline]
    fn enter(rank: Rank) -> Self {
        if cfg!(debug_assertions) {
            RANKS.with(|ranks| {
                let held = ranks.get();
                let highest = held.checked_ilog2().unwrap_or(0);
                assert!(
                    held >> rank.0 == 0,
                    "a lock of rank {} is taken under one of rank {highest}",
                    rank.0
                );
                ranks.set(held | 1 << rank.0);
            });
        }
        Self(rank)
    }
}

impl Drop for Order {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            RANKS.with(|ranks| ranks.set(ranks.get() & !(1 << self.0.0)));
        }
    }
}
