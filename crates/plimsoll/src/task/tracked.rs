//! The future around a future.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::current::{self, Polling};
use super::registration;
use super::slab::SLAB;
use super::slot::control::{DROPPING, NESTED, UNMANAGED};
use super::slot::{Birth, Slot};
use super::times::{self, Timed};
use super::{TaskId, next_id};
use crate::label::{self, Labels};
use crate::os;
use crate::primitives::Ordering;

/// A future that is in the task profile from when it is made until it is dropped. Made by
/// [`track`] or [`TrackExt::tracked`].
///
/// It takes 8 bytes more than the future, and 128 bytes beside it. It is `Send`, `Sync` and `Unpin`
/// if the future is, and does what that does. To wait for it makes it a task within the one that
/// does.
#[must_use = "futures do nothing unless polled"]
pub struct Tracked<F> {
    /// `None` if there was no room.
    slot: Option<&'static Slot>,
    future: ManuallyDrop<F>,
}

/// Puts a future into the task profile.
#[track_caller]
pub fn track<F: Future>(future: F) -> Tracked<F> {
    track_at(future, Location::caller())
}

/// The same, for what was made there.
pub(super) fn track_at<F: Future>(future: F, location: &'static Location<'static>) -> Tracked<F> {
    let slot = SLAB.take();
    if let Some(slot) = slot {
        slot.begin(&Birth {
            id: next_id(),
            parent: current::task().map_or(0, Slot::id),
            type_name: std::any::type_name::<F>,
            location,
            labels: label::current().number(),
        });
    }
    super::FUTURE_BYTES.fetch_add(size_of::<F>() as u64, Ordering::Relaxed);
    Tracked {
        slot,
        future: ManuallyDrop::new(future),
    }
}

/// Puts futures into the task profile.
pub trait TrackExt: Future + Sized {
    /// This future, in the task profile: [`track`].
    #[track_caller]
    fn tracked(self) -> Tracked<Self> {
        track(self)
    }

    /// The same with a name: [`Tracked::named`].
    #[track_caller]
    fn tracked_as(self, name: &str) -> Tracked<Self> {
        track(self).named(name)
    }
}

impl<F: Future> TrackExt for F {}

impl<F> Tracked<F> {
    /// Gives the task a name. Names are kept for good, each once: use them for kinds of tasks.
    pub fn named(self, name: &str) -> Self {
        if let Some(slot) = self.slot {
            slot.about_to_change();
            slot.set_name(Labels::of([("", name)]).number());
        }
        self
    }

    /// Adds a label, which is that of all that happens while the task is polled.
    pub fn label(self, key: &str, value: &str) -> Self {
        if let Some(slot) = self.slot {
            slot.about_to_change();
            let labels = Labels::of_number(slot.labels()).and([(key, value)]);
            slot.set_labels(labels.number());
        }
        self
    }

    /// The task's number, which no other task ever has; `None` if there was no room for it.
    pub fn id(&self) -> Option<TaskId> {
        self.slot.map(|slot| TaskId(slot.id()))
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is neither moved nor handed out but pinned; it is dropped in place.
        let (slot, future) = unsafe {
            let this = self.get_unchecked_mut();
            (this.slot, Pin::new_unchecked(&mut *this.future))
        };
        let Some(slot) = slot else {
            return future.poll(context);
        };
        let timed = if times::are_wanted() {
            times::begin(slot, current::task().is_some())
        } else {
            Timed::NOT
        };
        let has_another = slot.begin_poll(os::thread_id() as u32, context.waker());
        // Made where it stays.
        let mut poll = InPoll {
            slot,
            handed_out: HandedOut::Slots,
            polling: Polling::new(slot),
            timed,
            ready: false,
        };
        poll.begin(has_another, context.waker());
        let waker = match poll.handed_out {
            HandedOut::Slots => registration::waker(slot),
            HandedOut::Auxiliary(auxiliary) => registration::waker(auxiliary),
            HandedOut::Lent => return future.poll(context),
        };
        poll.polling.enter();
        let result = future.poll(&mut Context::from_waker(&waker));
        poll.ready = result.is_ready();
        result
    }
}

/// From the beginning of a poll to its end, also if that is a panic.
struct InPoll {
    slot: &'static Slot,
    handed_out: HandedOut,
    polling: Polling,
    timed: Timed,
    ready: bool,
}

/// What waker the future is polled with.
enum HandedOut {
    /// That of the slot.
    Slots,
    /// That of another, with a registration for the poll, because the slot has registrations of
    /// another waker.
    Auxiliary(&'static Slot),
    /// The executor's, because there is no room.
    Lent,
}

impl InPoll {
    /// Settles what waker is handed out in place of the executor's. The slot may have another one.
    #[inline]
    fn begin(&mut self, has_another: bool, waker: &Waker) {
        if self.polling.is_nested() {
            self.slot.flag(NESTED);
        }
        if has_another {
            // Until the poll is entered, the calling thread still polls the task outside of it:
            // whose stack is taken if its waker is cloned.
            self.handed_out = match self.slot.register_elsewhere(waker) {
                Some(auxiliary) => HandedOut::Auxiliary(auxiliary),
                None => HandedOut::Lent,
            };
        }
        // A waker of nothing in particular wakes nothing in particular: `Waker::noop`.
        if matches!(self.handed_out, HandedOut::Lent) || waker.data().is_null() {
            self.slot.flag(UNMANAGED);
        }
    }
}

impl Drop for InPoll {
    #[inline]
    fn drop(&mut self) {
        self.slot.about_to_change();
        self.polling.leave();
        if let HandedOut::Auxiliary(auxiliary) = self.handed_out {
            auxiliary.release();
        }
        self.timed.end(self.slot);
        self.slot.end_poll(self.ready);
    }
}

impl<F> Drop for Tracked<F> {
    fn drop(&mut self) {
        /// The task is over when its future is gone, also if that panics.
        struct Ends(Option<&'static Slot>, usize);
        impl Drop for Ends {
            fn drop(&mut self) {
                super::FUTURE_BYTES.fetch_sub(self.1 as u64, Ordering::Relaxed);
                if let Some(slot) = self.0 {
                    slot.end();
                }
            }
        }
        if let Some(slot) = self.slot {
            slot.about_to_change();
            slot.flag(DROPPING);
        }
        let _ends = Ends(self.slot, size_of::<F>());
        // SAFETY: this is the last that is done with it.
        unsafe { ManuallyDrop::drop(&mut self.future) };
    }
}

impl<F> fmt::Debug for Tracked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
