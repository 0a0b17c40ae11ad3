//! Waits of tasks, for the primitives of [`crate::sync::tokio`].
//!
//! Tasks are many. Ten thousand may wait for one lock, and a hundred thousand for messages that do
//! not come for hours; in the [table](super::waiters) of threads that wait, they would take the
//! room, and whoever released that lock would have to stamp them one by one. So what tasks wait for
//! has the little that is needed of its own: a lock has an [`Account`], whose every step takes the
//! same time however many wait; all else has a [`Signal`].
//!
//! The rules are those of the table: who releases a lock is blamed for what all who wait for it
//! have waited that nobody was blamed for before; a wait ends when its task is woken; and the sum
//! of all blame is the sum of all waits for locks. A task may go on on another thread than it
//! waited on, so nothing here belongs to a thread.

mod account;
mod signal;

pub(crate) use account::Account;
pub(crate) use signal::Signal;

use super::record::What;
use super::{Ended, WaitKind, clock, record};
use crate::stack::Start;
use crate::task::held::Owner;

/// What tasks wait for.
pub(crate) trait Awaited {
    /// Somebody begins a wait of that kind. Returns when that is.
    fn enter(&self, kind: WaitKind) -> u64;

    /// Somebody ends a wait that began then. Returns until when it is accounted for, if it is.
    fn leave(&self, start: u64) -> Option<u64>;

    /// What it is called.
    fn name(&self) -> Option<&'static str> {
        None
    }

    /// The task that owns it, if it is a lock.
    fn owner(&self) -> Option<&Owner> {
        None
    }
}

impl<A: Awaited> Awaited for &A {
    fn enter(&self, kind: WaitKind) -> u64 {
        A::enter(self, kind)
    }

    fn leave(&self, start: u64) -> Option<u64> {
        A::leave(self, start)
    }

    fn name(&self) -> Option<&'static str> {
        A::name(self)
    }

    fn owner(&self) -> Option<&Owner> {
        A::owner(self)
    }
}

/// When something was sent that carries this along, if that is known. Otherwise it has been waited
/// for until the task goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt(u64);

impl SentAt {
    pub(crate) const UNKNOWN: Self = Self(0);

    /// Now, if anything is recorded.
    #[inline]
    pub(crate) fn now() -> Self {
        if super::is_on() {
            Self(clock::now())
        } else {
            Self::UNKNOWN
        }
    }
}

impl Awaited for SentAt {
    fn enter(&self, _kind: WaitKind) -> u64 {
        clock::now()
    }

    fn leave(&self, start: u64) -> Option<u64> {
        (self.0 > start).then_some(self.0)
    }
}

/// A wait for `awaited` is over that began at `start`; who waited is at `stack`.
/// [`Ended::TimedOut`] is that of a future which was dropped.
pub(crate) fn end(awaited: &impl Awaited, kind: WaitKind, start: u64, ended: Ended, stack: Start) {
    let until = awaited.leave(start);
    let name = awaited.name();
    let what = What { kind, name };
    let until_now = clock::now().saturating_sub(start);
    let accounted = until.map_or(0, |until| until.saturating_sub(start));
    let rest = until_now.saturating_sub(accounted);
    if kind.is_lock() {
        // As much as others were blamed for, whatever the end was.
        if accounted > 0 {
            let latency = if ended == Ended::TimedOut { 0 } else { rest };
            record::wait(what, accounted, latency, stack);
        }
        if ended == Ended::TimedOut && rest > 0 {
            let kind = WaitKind::GivenUp;
            record::wait(What { kind, name }, rest, 0, stack);
        }
        return;
    }
    match ended {
        Ended::TimedOut => record::wait(what, until_now, 0, stack),
        _ if accounted > 0 => record::wait(what, accounted, rest, stack),
        // It was there for the taking.
        Ended::Acquired => {}
        _ => record::wait(what, until_now, 0, stack),
    }
}
