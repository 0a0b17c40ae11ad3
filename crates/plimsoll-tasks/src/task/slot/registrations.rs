//! Registrations: the counts of wakers, and the executor's waker behind them.

use std::mem::ManuallyDrop;
use std::task::Waker;

use plimsoll_sys::primitives::Ordering;

use super::super::slab::SLAB;
use super::Slot;
use super::control::ControlSnapshot;

impl Slot {
    /// Adds a registration. The caller owns another one, or has the waker that was lent for the
    /// current poll; `by_poller` is true for the poller. Returns `None` if there is none yet, and
    /// the caller may not make the first.
    #[inline]
    pub(in crate::task) fn register(&self, by_poller: bool) -> Option<()> {
        if self.control.try_add_registration(|_| true) {
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
        self.control.add_first_registration();
        Some(())
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
        if !self.control.try_add_auxiliary() {
            return None;
        }
        let Some(auxiliary) = SLAB.take() else {
            // The task is being polled, so it keeps its slot without this count.
            self.control.cancel_auxiliary();
            return None;
        };
        auxiliary.begin_auxiliary(self, waker.clone());
        self.latest
            .store(SLAB.number(auxiliary) + 1, Ordering::Relaxed);
        Some(auxiliary)
    }

    /// Adds a registration to an auxiliary slot, if the slot has some, still belongs to `task`, and
    /// holds that waker.
    fn register_again(&self, task: &Slot, waker: &Waker) -> bool {
        if !self
            .control
            .try_add_registration(ControlSnapshot::is_auxiliary)
        {
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
        self.release_and_count(false);
    }

    /// Releases a registration after a wake through it.
    pub(in crate::task) fn release_after_wake(&self) {
        self.release_and_count(true);
    }

    #[inline]
    fn release_and_count(&self, woke: bool) {
        let mut current = self.control.load(Ordering::Acquire);
        loop {
            let is_last = current.registrations() == 1;
            // Copied before it is known to be the last registration: afterwards, another thread may
            // have put a different waker there. SAFETY: a registration exists, so the waker is
            // present. If it turns out not to be the last one, the copy is not dropped.
            let inner = is_last.then(|| unsafe { self.inner.copy() });
            match self.control.try_release_registration(current, woke) {
                Ok(left) => {
                    if let Some(inner) = inner {
                        // The waker has no other owner now.
                        drop(ManuallyDrop::into_inner(inner));
                        self.released_last(left);
                    }
                    return;
                }
                Err(other) => current = other,
            }
        }
    }

    /// Releases what depends on the last registration, whose release left `control`.
    fn released_last(&self, control: ControlSnapshot) {
        if control.is_auxiliary() {
            let task = SLAB.slot(self.link.load(Ordering::Relaxed));
            SLAB.give(self);
            task.give_if_unused(task.control.release_auxiliary());
        } else {
            self.give_if_unused(control);
        }
    }

    pub(super) fn give_if_unused(&self, control: ControlSnapshot) {
        if control.is_unused() {
            SLAB.give(self);
        }
    }
}
