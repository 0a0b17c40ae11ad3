//! A lock whose owners change counts, which a reader takes at an instant without the lock.
//!
//! The instant is a turn of the *epoch*, a number that only the reader changes. An owner loads the
//! epoch after it has acquired the lock. If the epoch has turned since the last owner, it first
//! copies the counts: the copy has every change before the turn and none after it. The reader
//! takes the copy, or the counts themselves if there was no owner since the turn.
//!
//! The reader never holds the lock, so an owner waits for other owners only, even if the reader loses
//! its processor.
//!
//! # Ordering
//! An owner changes `sequence`, then loads the epoch; the reader stores the epoch, then loads
//! `sequence`. Each has a sequentially consistent fence between the two. So either the reader sees
//! that an owner is there, or that owner sees the new epoch.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use plimsoll_sys::primitives::{AtomicU64, Backoff, Ordering, fence};

/// The number of the current epoch, common to all locks of a heap.
pub(crate) struct Epoch(AtomicU64);

impl Epoch {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Turns the epoch and returns its number. Only one reader at a time may call this, and it reads
    /// all counts before the next call.
    pub(crate) fn turn(&self) -> u64 {
        let epoch = self.0.load(Ordering::Relaxed) + 1;
        self.0.store(epoch, Ordering::Release);
        fence(Ordering::SeqCst);
        epoch
    }
}

/// Data under a lock, with `N` counts; see the module documentation.
pub(crate) struct CountedLock<T, const N: usize> {
    /// Odd while the lock is held; each acquisition and each release adds 1.
    sequence: AtomicU64,
    /// The epoch that the last owner saw.
    turned: AtomicU64,
    counts: [AtomicU64; N],
    /// The counts at the turn of the epoch `turned`.
    copy: [AtomicU64; N],
    data: UnsafeCell<T>,
}

// SAFETY: only the owner of the lock has a reference to the data.
unsafe impl<T: Send, const N: usize> Sync for CountedLock<T, N> {}

impl<T, const N: usize> CountedLock<T, N> {
    #[cfg(not(loom))]
    pub(crate) const fn new(data: T) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            turned: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; N],
            copy: [const { AtomicU64::new(0) }; N],
            data: UnsafeCell::new(data),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new(data: T) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            turned: AtomicU64::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            copy: std::array::from_fn(|_| AtomicU64::new(0)),
            data: UnsafeCell::new(data),
        }
    }

    /// Acquires the lock.
    pub(crate) fn lock(&self, epoch: &Epoch) -> Owner<'_, T, N> {
        let mut backoff = Backoff::new();
        loop {
            let sequence = self.sequence.load(Ordering::Relaxed);
            if sequence % 2 == 0
                && self
                    .sequence
                    .compare_exchange_weak(
                        sequence,
                        sequence + 1,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                break;
            }
            backoff.wait();
        }
        fence(Ordering::SeqCst);
        let mut owner = Owner { lock: self };
        owner.follow(epoch);
        owner
    }

    /// Returns the counts at the turn to `epoch`, which is the current one. Waits for the owner at
    /// that moment, if there was one.
    pub(crate) fn at(&self, epoch: u64) -> [u64; N] {
        let read = |counts: &[AtomicU64; N]| {
            std::array::from_fn(|index| counts[index].load(Ordering::Relaxed))
        };
        let mut backoff = Backoff::new();
        loop {
            // First, so that an owner who comes after the next load changes it.
            let before = self.sequence.load(Ordering::Acquire);
            if self.turned.load(Ordering::Acquire) == epoch {
                return read(&self.copy);
            }
            if before % 2 == 0 {
                let counts = read(&self.counts);
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return counts;
                }
            }
            backoff.wait();
        }
    }

    /// Acquires the lock until [`CountedLock::release`], for a fork.
    pub(crate) fn acquire(&self, epoch: &Epoch) {
        std::mem::forget(self.lock(epoch));
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller has called [`CountedLock::acquire`] since the last release.
    pub(crate) unsafe fn release(&self) {
        drop(Owner { lock: self });
    }
}

/// The owner of a [`CountedLock`].
pub(crate) struct Owner<'a, T, const N: usize> {
    lock: &'a CountedLock<T, N>,
}

impl<T, const N: usize> Owner<'_, T, N> {
    /// Copies the counts if the epoch has turned: changes from now on are after that turn.
    ///
    /// An owner whose change follows from the change of another lock calls this in between. Otherwise
    /// the other lock's owner may see the next epoch, and a reading has this change alone.
    pub(crate) fn follow(&mut self, epoch: &Epoch) {
        let lock = self.lock;
        let epoch = epoch.0.load(Ordering::Acquire);
        if lock.turned.load(Ordering::Relaxed) != epoch {
            for (copy, count) in lock.copy.iter().zip(&lock.counts) {
                copy.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            lock.turned.store(epoch, Ordering::Release);
        }
    }

    /// Adds to a count, modulo 2^64.
    pub(crate) fn add(&mut self, count: usize, amount: u64) {
        let count = &self.lock.counts[count];
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// Sets a count.
    pub(crate) fn set(&mut self, count: usize, value: u64) {
        self.lock.counts[count].store(value, Ordering::Relaxed);
    }

    /// Returns a count.
    pub(crate) fn count(&self, count: usize) -> u64 {
        self.lock.counts[count].load(Ordering::Relaxed)
    }
}

impl<T, const N: usize> Deref for Owner<'_, T, N> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the owner of the lock has the only reference.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, const N: usize> DerefMut for Owner<'_, T, N> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the owner of the lock has the only reference.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, const N: usize> Drop for Owner<'_, T, N> {
    fn drop(&mut self) {
        let sequence = self.lock.sequence.load(Ordering::Relaxed);
        self.lock.sequence.store(sequence + 1, Ordering::Release);
    }
}
