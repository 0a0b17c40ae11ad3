//! What all primitives here do when a task, or a thread, has to wait.
//!
//! The functions that record are never inlined, so that stacks begin in their caller.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::coop;

use crate::contention::awaited::{self, Awaited};
use crate::contention::meter::{self, Timed};
use crate::contention::{self, Ended, Suspended, WaitKind, suspend};
use crate::stack::{Registers, Start};
use crate::sync::contended::keeps_its_frame;
use crate::task::held::{self, PlaceNumber};

/// Attempts what needs no wait if it succeeds, as part of tokio's cooperative scheduling. Returns
/// whether it did.
///
/// Where it does, neither tokio's future nor a [`Waiting`] is made, which costs more than the
/// attempt. Tokio's semaphores and channels let no attempt pass those who wait.
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

/// A future of tokio's that waits for something, and when it began to.
///
/// The wait begins when the future is pending for the first time, and ends when it is ready, with
/// the stack of whoever polls it then: the chain of those who await it, in the task. Or it ends
/// when the future is dropped, with the stack of who does that.
pub(super) struct Waiting<A: Awaited, F> {
    future: F,
    wait: TaskWait<A>,
}

/// The wait of a task.
pub(super) struct TaskWait<A: Awaited> {
    awaited: A,
    /// When it began, if that is to be known.
    start: u64,
    kind: WaitKind,
    state: State,
    /// Where the wait is noted, for a report of deadlocks.
    place: PlaceNumber,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It does not wait yet.
    Ready,
    /// It waits.
    Waits,
    /// It waits, and nothing is recorded.
    Timed,
    /// The same, and it is not this one's turn to be timed.
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

    /// What tokio's future can besides being polled.
    #[inline]
    pub(super) fn with_future<R>(self: Pin<&mut Self>, call: impl FnOnce(Pin<&mut F>) -> R) -> R {
        // SAFETY: the future is pinned as `self` is: it is not moved, and nothing else is pinned.
        call(unsafe { self.map_unchecked_mut(|this| &mut this.future) })
    }
}

impl<A: Awaited, F: Future> Future for Waiting<A, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: as above.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
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
        }
    }

    /// What the task waits for.
    #[inline]
    pub(super) fn awaited(&mut self) -> &mut A {
        &mut self.awaited
    }

    /// What the task waits for was polled.
    #[inline]
    pub(super) fn polled(&mut self, is_ready: bool, context: &Context<'_>) {
        match (self.state, is_ready) {
            (State::Ready, false) => self.begin(context),
            (_, true) => self.arrived(),
            (_, false) if self.place != 0 => held::waits_still(self.place, context),
            (_, false) => return,
        }
        keeps_its_frame();
    }

    /// What the task waits for is there.
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
        // Where tokio made the future pending because it is some other task's turn, there may be
        // nothing to wait for. Of a lock, that would be told by nobody releasing it; and
        // notifications are not held back.
        let is_told = self.kind.is_lock() || self.kind == WaitKind::Notify;
        if !is_told && !coop::has_budget_remaining() {
            return;
        }
        (self.state, self.start) = if contention::is_on() {
            (State::Waits, self.awaited.enter(self.kind))
        } else if meter::is_turn() && self.kind.is_lock() {
            (State::Timed, Timed::begin().start())
        } else {
            (State::Untimed, 0)
        };
        if contention::notes_owners() {
            if let Some(owner) = self.awaited.owner() {
                self.place = held::waits(owner, self.awaited.name(), context);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn end(&mut self, ended: Ended) {
        if self.place != 0 {
            held::waits_no_more(std::mem::take(&mut self.place));
        }
        match std::mem::replace(&mut self.state, State::Ready) {
            State::Waits => {
                let stack = Start::Here(Registers::here());
                awaited::end(&self.awaited, self.kind, self.start, ended, stack);
            }
            State::Timed => Timed::since(self.start).end(),
            State::Ready | State::Untimed => {}
        }
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

/// A wait of a thread, in a method of tokio's that blocks it. The thread's own waits in there are
/// not seen.
pub(super) struct ThreadWait<A: Awaited> {
    awaited: A,
    kind: WaitKind,
    wait: Option<(u64, Suspended)>,
}

impl<A: Awaited> ThreadWait<A> {
    /// The calling thread is about to take what it may have to wait for.
    pub(super) fn begin(kind: WaitKind, awaited: A) -> Self {
        let wait = contention::is_on().then(|| (awaited.enter(kind), suspend()));
        Self {
            awaited,
            kind,
            wait,
        }
    }
}

impl<A: Awaited> ThreadWait<A> {
    /// What the thread waits for.
    pub(super) fn awaited(&mut self) -> &mut A {
        &mut self.awaited
    }

    /// It has it, or will not get it.
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
