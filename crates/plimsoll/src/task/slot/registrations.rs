//! Registrations: the counts of wakers, and the executor's waker behind them.

use std::mem::ManuallyDrop;
use std::task::Waker;

use plimsoll_sys::primitives::Ordering;

use super::super::slab::SLAB;
use super::Slot;
use super::control::*;

/// Aborts the process, which has [`MAX_REGISTRATIONS`] wakers of one task.
#[cold]
#[inline(never)]
fn too_many_registrations() -> ! {
    std::process::abort()
}

impl Slot {
    /// Adds a registration. The caller owns another one, or has the waker that was lent for the
    /// current poll; `by_poller` is true for the poller. Returns `None` if there is none yet, and
    /// the caller may not make the first.
    #[inline]
    pub(in crate::task) fn register(&self, by_poller: bool) -> Option<()> {
        if self.add_registration(|_| true) {
            return Some(());
        }
        if !by_poller {
            return None;
        }
        // The task does not wait any more where it waited before this poll.
        self.forget_stacks();
        let waker = self.lent().clone();
        // SAFETY: no registration exists, so no other thread uses `inner`, and only the poller,
        // this thread, makes the first.
        unsafe { self.inner.put(waker) };
        self.control.fetch_add(REGISTRATION, Ordering::Release);
        Some(())
    }

    /// Counts one more registration. Returns false, and counts nothing, if there is none or
    /// `accepts` rejects the value of `control`. Aborts the process above [`MAX_REGISTRATIONS`].
    #[inline]
    fn add_registration(&self, accepts: impl Fn(u64) -> bool) -> bool {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            // One comparison for both bounds: a count of 0 wraps to the maximum.
            if (control as u32).wrapping_sub(1) >= MAX_REGISTRATIONS - 1 {
                if control & REGISTRATIONS == 0 {
                    return false;
                }
                too_many_registrations();
            }
            if !accepts(control) {
                return false;
            }
            match self.control.compare_exchange_weak(
                control,
                control + REGISTRATION,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(other) => control = other,
            }
        }
    }

    /// Returns the waker that the executor lends for the current poll.
    pub(in crate::task) fn lent(&self) -> &Waker {
        // SAFETY: each caller has received the slot's waker in that poll. The executor's waker, to
        // which `lent` points, lives at least as long as that one.
        unsafe { &*(self.lent.load(Ordering::Relaxed) as *const Waker) }
    }

    /// Adds a registration in an auxiliary slot, of a waker that the slot cannot take. Either the
    /// slot holds another waker, or a thread other than the poller makes the first registration.
    /// Returns `None` if no slot is free.
    #[cold]
    pub(in crate::task) fn register_elsewhere(&self, waker: &Waker) -> Option<&'static Slot> {
        if let Some(latest) = self.latest.load(Ordering::Relaxed).checked_sub(1) {
            let latest = SLAB.slot(latest);
            if latest.register_again(self, waker) {
                return Some(latest);
            }
        }
        if !self.add_auxiliary() {
            return None;
        }
        let Some(auxiliary) = SLAB.take() else {
            // The task is being polled, so it keeps its slot without this count.
            self.control.fetch_sub(AUXILIARY, Ordering::Relaxed);
            return None;
        };
        auxiliary.begin_auxiliary(self, waker.clone());
        self.latest
            .store(SLAB.number(auxiliary) + 1, Ordering::Relaxed);
        Some(auxiliary)
    }

    /// Counts one more auxiliary slot. Returns false, and counts nothing, at [`MAX_AUXILIARIES`].
    fn add_auxiliary(&self) -> bool {
        let one_more = |control| {
            let is_room = control & AUXILIARIES < MAX_AUXILIARIES;
            is_room.then_some(control + AUXILIARY)
        };
        self.control
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    /// Adds a registration to an auxiliary slot, if the slot has some, still belongs to `task`, and
    /// holds that waker.
    fn register_again(&self, task: &Slot, waker: &Waker) -> bool {
        if !self.add_registration(|control| control & IS_AUXILIARY != 0) {
            return false;
        }
        let same = self.link.load(Ordering::Relaxed) == SLAB.number(task)
            // SAFETY: the registration just added keeps the waker in place.
            && unsafe { self.inner.is(waker) };
        if !same {
            self.release();
        }
        same
    }

    /// Wakes the task at its executor.
    ///
    /// # Safety
    /// A registration exists, and stays during the call.
    pub(in crate::task) unsafe fn wake_inner(&self) {
        // SAFETY: by this function's contract a registration exists, so the waker is present and no
        // thread replaces it.
        unsafe { self.inner.wake() };
    }

    /// Releases a registration, which must exist. With the last one, the executor's waker is
    /// dropped.
    pub(in crate::task) fn release(&self) {
        self.release_and(0);
    }

    /// Releases a registration after a wake through it.
    pub(in crate::task) fn release_after_wake(&self) {
        self.release_and(WAKE);
    }

    #[inline]
    fn release_and(&self, add: u64) {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            let last = control & REGISTRATIONS == REGISTRATION;
            // Copied before it is known to be the last registration: afterwards, another thread may
            // have put a different waker there. SAFETY: a registration exists, so the waker is
            // present. If it turns out not to be the last one, the copy is not dropped.
            let inner = last.then(|| unsafe { self.inner.copy() });
            let next = (control - REGISTRATION).wrapping_add(add);
            match self.control.compare_exchange_weak(
                control,
                next,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    if let Some(inner) = inner {
                        // The waker has no other owner now.
                        drop(ManuallyDrop::into_inner(inner));
                        self.released_last(next);
                    }
                    return;
                }
                Err(other) => control = other,
            }
        }
    }

    /// Releases what depends on the last registration, whose release left `control`.
    fn released_last(&self, control: u64) {
        if control & IS_AUXILIARY != 0 {
            let task = SLAB.slot(self.link.load(Ordering::Relaxed));
            SLAB.give(self);
            let left = task.control.fetch_sub(AUXILIARY, Ordering::AcqRel) - AUXILIARY;
            task.give_if_unused(left);
        } else {
            self.give_if_unused(control);
        }
    }

    pub(super) fn give_if_unused(&self, control: u64) {
        if control & (HELD | REGISTRATIONS | AUXILIARIES) == 0 {
            SLAB.give(self);
        }
    }
}
