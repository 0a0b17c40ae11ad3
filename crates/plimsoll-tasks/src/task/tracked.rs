//! The future that wraps a tracked future.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plimsoll_sys::os;
use plimsoll_sys::primitives::Ordering;

use super::current::{self, Polling};
use super::registration;
use super::slab::SLAB;
use super::slot::{Creation, Slot};
use super::times::{self, Timed};
use super::{TaskId, next_id, spawners};
use plimsoll_core::alloc::measured::{self, Totals};
use plimsoll_core::label::{self, Labels};

/// A future that is in the task profile from its creation until it is dropped. Created by [`track`]
/// or [`TrackExt::tracked`].
///
/// It is 16 bytes larger than the wrapped future, and uses 128 bytes elsewhere. It is `Send`, `Sync`
/// and `Unpin` if the wrapped future is, and behaves like it. A tracked future that another task
/// awaits is a task nested in that one.
///
/// ```
/// use plimsoll::task::{Tracked, track};
///
/// # fn block_on<F: Future>(task: F) -> F::Output {
/// #     use std::task::{Context, Poll, Waker};
/// #     match std::pin::pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
/// #         Poll::Ready(output) => output,
/// #         Poll::Pending => unreachable!(),
/// #     }
/// # }
/// fn session(tenant: &str) -> Tracked<impl Future<Output = i32>> {
///     track(async { 42 }).named("session").label("tenant", tenant)
/// }
/// assert_eq!(block_on(session("acme")), 42);
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Tracked<F> {
    /// `None` if no slot was free.
    slot: Option<&'static Slot>,
    /// The account to which the task's allocations are charged.
    pub(crate) account: Option<Arc<Totals>>,
    future: ManuallyDrop<F>,
}

/// Adds a future to the task profile.
#[track_caller]
pub fn track<F: Future>(future: F) -> Tracked<F> {
    track_at(future, Location::caller())
}

/// Same as [`track`], for a future that was created at `location`.
pub(super) fn track_at<F: Future>(future: F, location: &'static Location<'static>) -> Tracked<F> {
    let slot = SLAB.take();
    if let Some(slot) = slot {
        spawners::note(location);
        slot.begin(&Creation {
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
        account: measured::inherited_account(),
        future: ManuallyDrop::new(future),
    }
}

/// Adds futures to the task profile.
///
/// ```
/// use plimsoll::task::{TrackExt, tasks};
///
/// async fn serve() {}
///
/// // For an executor: `spawn(serve().tracked_as("server"))` instead of `spawn(serve())`.
/// let task = serve().tracked_as("server");
/// assert!(tasks().iter().any(|task| task.name() == Some("server")));
/// # drop(task);
/// ```
pub trait TrackExt: Future + Sized {
    /// Returns this future, in the task profile: see [`track`].
    #[track_caller]
    fn tracked(self) -> Tracked<Self> {
        track(self)
    }

    /// Same as [`tracked`](Self::tracked), with a name: see [`Tracked::named`].
    #[track_caller]
    fn tracked_as(self, name: &str) -> Tracked<Self> {
        track(self).named(name)
    }
}

impl<F: Future> TrackExt for F {}

impl<F> Tracked<F> {
    /// Sets the task's name. Each name is stored once and never removed: use names for kinds of
    /// tasks.
    pub fn named(self, name: &str) -> Self {
        if let Some(slot) = self.slot {
            slot.about_to_change();
            slot.set_name(Labels::of([("", name)]).number());
        }
        self
    }

    /// Adds a label, under which all events are recorded while the task is polled.
    pub fn label(self, key: &str, value: &str) -> Self {
        if let Some(slot) = self.slot {
            slot.about_to_change();
            let labels = Labels::of_number(slot.labels()).and([(key, value)]);
            slot.set_labels(labels.number());
        }
        self
    }

    /// Returns the task's number, which no other task ever has; `None` if no slot was free.
    pub fn id(&self) -> Option<TaskId> {
        self.slot.map(|slot| TaskId(slot.id()))
    }

    /// Returns the task's labels; none if no slot was free.
    pub(crate) fn labels(&self) -> Labels {
        self.slot
            .map_or(Labels::NONE, |slot| Labels::of_number(slot.labels()))
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is never moved, is accessible only pinned, and is dropped in place.
        let (slot, account, future) = unsafe {
            let this = self.get_unchecked_mut();
            let future = Pin::new_unchecked(&mut *this.future);
            (this.slot, &this.account, future)
        };
        match account {
            None => poll(slot, future, context),
            Some(account) => poll_charged(account, slot, future, context),
        }
    }
}

/// Polls a task, and charges its allocations to an account.
#[inline(never)]
fn poll_charged<F: Future>(
    account: &Arc<Totals>,
    slot: Option<&'static Slot>,
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Poll<F::Output> {
    measured::charged(account, || poll(slot, future, context))
}

#[inline]
fn poll<F: Future>(
    slot: Option<&'static Slot>,
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Poll<F::Output> {
    let Some(slot) = slot else {
        return future.poll(context);
    };
    let timed = if times::are_wanted() {
        times::begin(slot, current::task().is_some())
    } else {
        Timed::NOT
    };
    let has_another = slot.begin_poll(os::thread_id() as u32, context.waker());
    // Created in its final place: `enter` stores its address.
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

/// A guard of one poll, which ends it even if it panics.
struct InPoll {
    slot: &'static Slot,
    handed_out: HandedOut,
    polling: Polling,
    timed: Timed,
    ready: bool,
}

/// The waker with which the future is polled.
enum HandedOut {
    /// The waker of the task's slot.
    Slots,
    /// The waker of an auxiliary slot, with a registration for the poll, because the task's slot
    /// holds another executor's waker.
    Auxiliary(&'static Slot),
    /// The executor's own waker, because no slot was free.
    Lent,
}

impl InPoll {
    /// Selects the waker that replaces the executor's, as the slot may hold another one.
    #[inline]
    fn begin(&mut self, has_another: bool, waker: &Waker) {
        if self.polling.is_nested() {
            self.slot.control.mark_nested();
        }
        if has_another {
            // Until `enter`, the outer task is still the calling thread's: its stack is captured if
            // its waker is cloned here.
            self.handed_out = match self.slot.register_elsewhere(waker) {
                Some(auxiliary) => HandedOut::Auxiliary(auxiliary),
                None => HandedOut::Lent,
            };
        }
        // A waker without data, such as `Waker::noop`, cannot wake a certain task.
        if matches!(self.handed_out, HandedOut::Lent) || waker.data().is_null() {
            self.slot.control.mark_unmanaged();
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
        /// Ends the task when its future is dropped, even if the drop panics.
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
            slot.control.mark_dropping();
        }
        let _ends = Ends(self.slot, size_of::<F>());
        let future = &mut self.future;
        // SAFETY: the future is not used again: this is its last use in `drop`.
        let mut drop_future = || unsafe { ManuallyDrop::drop(future) };
        match &self.account {
            None => drop_future(),
            Some(account) => measured::charged(account, drop_future),
        }
    }
}

impl<F> fmt::Debug for Tracked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
