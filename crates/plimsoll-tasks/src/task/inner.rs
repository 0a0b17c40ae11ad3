//! The executor's waker, in a cell that is empty at times.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

#[cfg(not(loom))]
use std::cell::UnsafeCell;

#[cfg(loom)]
use loom::cell::UnsafeCell;

/// A cell for the executor's waker. [`Slot`](super::slot::Slot) documents when it is filled.
pub(super) struct Inner(UnsafeCell<MaybeUninit<Waker>>);

// SAFETY: the contracts of its functions ensure that no other thread uses the cell during a write;
// a `Waker` is `Send` and `Sync`.
unsafe impl Sync for Inner {}

impl Inner {
    #[cfg(loom)]
    pub(super) fn empty() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    /// No other thread uses the cell. The previous waker is not dropped.
    pub(super) unsafe fn put(&self, waker: Waker) {
        // SAFETY: no other thread uses the waker, by this function's contract.
        unsafe { self.with_mut(|inner| (*inner).write(waker)) };
    }

    /// Returns whether the cell holds the same waker.
    ///
    /// # Safety
    /// A waker was put here once, and no thread replaces it at the same time.
    pub(super) unsafe fn is(&self, waker: &Waker) -> bool {
        // SAFETY: a waker was put here and is not being replaced, by this function's contract. Only
        // its two pointers are compared.
        unsafe { self.with(|inner| (*inner).assume_init_ref().will_wake(waker)) }
    }

    /// # Safety
    /// The waker is present, and stays during the call.
    pub(super) unsafe fn wake(&self) {
        // SAFETY: the waker is present and stays, by this function's contract.
        unsafe { self.with(|inner| (*inner).assume_init_ref().wake_by_ref()) };
    }

    /// Returns a bitwise copy of the waker. Drop either the copy or the original, not both.
    ///
    /// # Safety
    /// The waker is present.
    pub(super) unsafe fn copy(&self) -> ManuallyDrop<Waker> {
        // SAFETY: the waker is present, by this function's contract.
        unsafe { self.with(|inner| ManuallyDrop::new((*inner).assume_init_read())) }
    }

    #[cfg(not(loom))]
    unsafe fn with<R>(&self, work: impl FnOnce(*const MaybeUninit<Waker>) -> R) -> R {
        work(self.0.get())
    }

    #[cfg(not(loom))]
    unsafe fn with_mut<R>(&self, work: impl FnOnce(*mut MaybeUninit<Waker>) -> R) -> R {
        work(self.0.get())
    }

    #[cfg(loom)]
    unsafe fn with<R>(&self, work: impl FnOnce(*const MaybeUninit<Waker>) -> R) -> R {
        self.0.with(work)
    }

    #[cfg(loom)]
    unsafe fn with_mut<R>(&self, work: impl FnOnce(*mut MaybeUninit<Waker>) -> R) -> R {
        self.0.with_mut(work)
    }
}
