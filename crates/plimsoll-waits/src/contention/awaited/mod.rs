//! Waits of tasks, for the primitives of [`crate::sync::tokio`].
//!
//! Tasks are many. Ten thousand may wait for one lock, and a hundred thousand for messages that
//! take hours to come. In the [table](super::waiters) of waiting threads they would fill the slots,
//! and each release would stamp them one by one. Therefore each lock for tasks has an [`Account`],
//! each step of which takes constant time however many tasks wait. Each other primitive has a
//! [`Signal`].
//!
//! The rules are the same as for the table. A release is charged the time that all waiters for the
//! lock have waited and that was not charged before. A wait ends when its task is woken. The sum of
//! all charges equals the sum of all waits for locks. A task may resume on another thread, so
//! nothing here belongs to a thread.

mod account;
mod signal;

pub use account::Account;
pub use signal::Signal;

use plimsoll_sys::os::clock;

use super::record::EventInfo;
use super::{Ended, WaitKind, record};
use plimsoll_core::stack::Start;
use plimsoll_tasks::recording;
use plimsoll_tasks::task::lock_owners::Owner;

/// An object for which tasks wait.
pub trait Awaited {
    /// Begins a wait of that kind. Returns its start.
    fn enter(&self, kind: WaitKind) -> u64;

    /// Ends a wait that began at `start`. Returns the time up to which it is accounted for, or
    /// `None` if it is not.
    fn leave(&self, start: u64) -> Option<u64>;

    /// Returns its name.
    fn name(&self) -> Option<&'static str> {
        None
    }

    /// Returns the task that owns it, if it is a lock.
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

/// The time at which the value that carries this was sent, if known. If unknown, the wait for the
/// value lasts until the task resumes.
#[derive(Clone, Copy, Debug)]
pub struct SentAt(u64);

impl SentAt {
    /// An unknown time.
    pub const UNKNOWN: Self = Self(0);

    /// Returns the current time, if anything is recorded.
    #[inline]
    pub fn now() -> Self {
        if recording::is_on() {
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

/// Ends and records a wait for `awaited` that began at `start`; the waiter is at `stack`. A dropped
/// future ends with [`Ended::TimedOut`].
pub fn end(awaited: &impl Awaited, kind: WaitKind, start: u64, ended: Ended, stack: Start) {
    let until = awaited.leave(start);
    let name = awaited.name();
    let what = EventInfo { kind, name };
    let until_now = clock::now().saturating_sub(start);
    let accounted = until.map_or(0, |until| until.saturating_sub(start));
    let rest = until_now.saturating_sub(accounted);
    if kind.is_lock() {
        // Record as much as the releases were charged, however the wait ended.
        if accounted > 0 {
            let latency = if ended == Ended::TimedOut { 0 } else { rest };
            record::wait(what, accounted, latency, stack);
        }
        if ended == Ended::TimedOut && rest > 0 {
            let kind = WaitKind::GivenUp;
            record::wait(EventInfo { kind, name }, rest, 0, stack);
        }
        return;
    }
    match ended {
        Ended::TimedOut => record::wait(what, until_now, 0, stack),
        _ if accounted > 0 => record::wait(what, accounted, rest, stack),
        // It was available without a wait.
        Ended::Acquired => {}
        _ => record::wait(what, until_now, 0, stack),
    }
}
