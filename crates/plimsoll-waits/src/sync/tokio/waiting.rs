//! The cold paths of all primitives for tasks, and of their blocking methods.
//!
//! The functions that record are never inlined, so that stacks begin in their caller.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use crate::contention::awaited::{self, Awaited, SentAt};
use crate::contention::meter::{self, Timed};
use crate::contention::{Ended, Suspended, WaitKind, suspend};
use crate::sync::contended::keeps_its_frame;
use plimsoll_core::stack::{Registers, Start};
use plimsoll_tasks::recording;
use plimsoll_tasks::task::lock_owners::{self, PlaceNumber};

/// Makes an attempt that may succeed without a wait, as part of tokio's cooperative scheduling.
/// Returns whether it succeeded.
///
/// After a success, neither tokio's future nor a [`Waiting`] is created, which would cost more than
/// the attempt. In tokio's semaphores and channels, an attempt never overtakes the waiters.
#[inline]
pub(super) fn at_once(mut attempt: impl FnMut() -> bool) -> impl Future<Output = bool> {
    poll_fn(move |context| {
        let proceeds = ready!(coop::poll_proceed(context));
        let succeeds = attempt();
        if succeeds {
            proceeds.made_progress();
        }
        Poll::Ready(succeeds)
    })
}

/// One of tokio's futures that waits, with its wait.
///
/// The wait begins when the future is pending for the first time, and ends when it is ready. It is
/// recorded with the stack of the task at its end: the chain of functions that await the future.
/// If the future is dropped instead, the wait is recorded with the stack of the drop.
pub(super) struct Waiting<A: Awaited, F> {
    future: F,
    wait: TaskWait<A>,
}

/// The wait of a task.
pub(super) struct TaskWait<A: Awaited> {
    awaited: A,
    /// The start of the wait, if it is measured. Before the wait, the task that created the sender
    /// of the message; 0 for none.
    start: u64,
    kind: WaitKind,
    state: State,
    /// The place where the wait is noted, for a report of deadlocks.
    place: PlaceNumber,
    /// Fills the padding. With padding, the compiler copies a future once more when it is created.
    _filler: [u8; 2],
}

const _: () = {
    let fields = size_of::<SentAt>()
        + size_of::<u64>()
        + size_of::<WaitKind>()
        + size_of::<State>()
        + size_of::<PlaceNumber>()
        + size_of::<[u8; 2]>();
    assert!(size_of::<TaskWait<SentAt>>() == fields, "no padding");
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It does not wait yet.
    Ready,
    /// It waits, and waits are recorded.
    Waits,
    /// It waits and is timed, while nothing is recorded.
    Timed,
    /// It waits and is not timed, while nothing is recorded.
    Untimed,
}

impl<A: Awaited, F: Future> Waiting<A, F> {
    #[inline]
    pub(super) fn new(kind: WaitKind, awaited: A, future: F) -> Self {
        Self {
            future,
            wait: TaskWait::new(kind, awaited),
        }
    }

    /// Calls a method of tokio's future other than `poll`.
    #[inline]
    pub(super) fn with_future<R>(self: Pin<&mut Self>, call: impl FnOnce(Pin<&mut F>) -> R) -> R {
        // SAFETY: the future is pinned whenever `self` is, and is never moved; the other field is
        // never pinned.
        call(unsafe { self.map_unchecked_mut(|this| &mut this.future) })
    }
}

impl<A: Awaited, F: Future> Future for Waiting<A, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with `self` and never moved out of `this`.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the future is pinned, since `self` is, and is never moved.
        let polled = unsafe { Pin::new_unchecked(&mut this.future) }.poll(context);
        this.wait.polled(polled.is_ready(), context);
        polled
    }
}

impl<A: Awaited> TaskWait<A> {
    #[inline]
    pub(super) fn new(kind: WaitKind, awaited: A) -> Self {
        Self {
            awaited,
            start: 0,
            kind,
            state: State::Ready,
            place: 0,
            _filler: [0; 2],
        }
    }

    /// Same as [`TaskWait::new`], for a message whose sender the task number `creator` created.
    #[inline]
    pub(super) fn for_message(kind: WaitKind, awaited: A, creator: u64) -> Self {
        Self {
            awaited,
            start: creator,
            kind,
            state: State::Ready,
            place: 0,
            _filler: [0; 2],
        }
    }

    /// Returns the awaited object.
    #[inline]
    pub(super) fn awaited(&mut self) -> &mut A {
        &mut self.awaited
    }

    /// Updates the wait after a poll of tokio's future.
    #[inline]
    pub(super) fn polled(&mut self, is_ready: bool, context: &Context<'_>) {
        match (self.state, is_ready) {
            (State::Ready, false) => self.begin(context),
            (_, true) => self.arrived(),
            (_, false) if self.place != 0 => lock_owners::waits_still(self.place, context),
            (_, false) => return,
        }
        keeps_its_frame();
    }

    /// Ends the wait, since the awaited object has arrived.
    #[inline]
    pub(super) fn arrived(&mut self) {
        if self.state != State::Ready {
            self.end(Ended::Woken);
            keeps_its_frame();
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self, context: &Context<'_>) {
        // If tokio made the future pending because the task's budget is used up, it may not have to
        // wait. For a lock, the absence of a release shows this; notifications do not use the
        // budget.
        let is_known = self.kind.is_lock() || self.kind == WaitKind::Notify;
        if !is_known && !coop::has_budget_remaining() {
            return;
        }
        let creator = self.start;
        (self.state, self.start) = if recording::is_on() {
            (State::Waits, self.awaited.enter(self.kind))
        } else if meter::is_turn() && self.kind.is_lock() {
            (State::Timed, Timed::begin().start())
        } else {
            (State::Untimed, 0)
        };
        if recording::notes_owners() {
            if let Some(owner) = self.awaited.owner() {
                let lock = lock_owners::Awaited::Lock(std::ptr::from_ref(owner) as usize);
                self.place = lock_owners::waits(lock, self.awaited.name(), context);
            } else if creator != 0 {
                let message = lock_owners::Awaited::Message(creator);
                self.place = lock_owners::waits(message, Some("oneshot"), context);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn end(&mut self, ended: Ended) {
        if self.place != 0 {
            lock_owners::waits_no_more(std::mem::take(&mut self.place));
        }
        match std::mem::replace(&mut self.state, State::Ready) {
            State::Waits => {
                let stack = Start::Here(Registers::here());
                awaited::end(&self.awaited, self.kind, self.start, ended, stack);
            }
            State::Timed => Timed::since(self.start).end(),
            State::Ready | State::Untimed => {}
        }
        self.start = 0;
    }
}

impl<A: Awaited> Drop for TaskWait<A> {
    #[inline]
    fn drop(&mut self) {
        if self.state != State::Ready {
            self.end(Ended::TimedOut);
            keeps_its_frame();
        }
    }
}

/// A wait of a thread, in a method of tokio's that blocks it. The hook does not record the thread's
/// own waits in that method.
pub(super) struct ThreadWait<A: Awaited> {
    awaited: A,
    kind: WaitKind,
    wait: Option<(u64, Suspended)>,
}

impl<A: Awaited> ThreadWait<A> {
    /// Begins a wait of the calling thread, which may have to wait.
    pub(super) fn begin(kind: WaitKind, awaited: A) -> Self {
        let wait = recording::is_on().then(|| (awaited.enter(kind), suspend()));
        Self {
            awaited,
            kind,
            wait,
        }
    }
}

impl<A: Awaited> ThreadWait<A> {
    /// Returns the awaited object.
    pub(super) fn awaited(&mut self) -> &mut A {
        &mut self.awaited
    }

    /// Ends the wait: the thread has received the object, or will not receive it.
    #[inline(always)]
    pub(super) fn end(self) {
        drop(self);
        keeps_its_frame();
    }
}

impl<A: Awaited> Drop for ThreadWait<A> {
    #[inline(never)]
    fn drop(&mut self) {
        if let Some((start, _suspended)) = self.wait.take() {
            let stack = Start::Here(Registers::here());
            awaited::end(&self.awaited, self.kind, start, Ended::Acquired, stack);
        }
    }
}
