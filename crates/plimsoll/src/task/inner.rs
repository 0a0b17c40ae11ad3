//! The executor's waker, in a place that is sometimes empty.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

#[cfg(not(loom))]
use std::cell::UnsafeCell;

#[cfg(loom)]
use loom::cell::UnsafeCell;

/// See [`Slot`](super::slot::Slot), which says when it is there.
pub(super) struct Inner(UnsafeCell<MaybeUninit<Waker>>);

// SAFETY: it is only written while nobody else uses it, as its functions demand; and a `Waker` is
// `Send` and `Sync`.
unsafe impl Sync for Inner {}

impl Inner {
    #[cfg(loom)]
    pub(super) fn empty() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    /// Nobody else uses it. What was there is not dropped.
    pub(super) unsafe fn put(&self, waker: Waker) {
        // SAFETY: the caller's.
        unsafe { self.with_mut(|inner| (*inner).write(waker)) };
    }

    /// Whether it is the same waker.
    ///
    /// # Safety
    /// It was there once, and nobody puts another one there at the same time.
    pub(super) unsafe fn is(&self, waker: &Waker) -> bool {
        // SAFETY: the caller's. Only two pointers are compared.
        unsafe { self.with(|inner| (*inner).assume_init_ref().will_wake(waker)) }
    }

    /// # Safety
    /// It is there, and stays.
    pub(super) unsafe fn wake(&self) {
        // SAFETY: the caller's.
        unsafe { self.with(|inner| (*inner).assume_init_ref().wake_by_ref()) };
    }

    /// A copy, to be dropped in place of the original or not at all.
    ///
    /// # Safety
    /// It is there.
    pub(super) unsafe fn copy(&self) -> ManuallyDrop<Waker> {
        // SAFETY: the caller's.
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
