//! A task, as it is told of.

use std::panic::Location;
use std::time::Duration;

use super::{Seen, State, TaskId};
use crate::label::Labels;
use crate::os::clock;
use crate::stack::TABLE;

/// A task at the instant of [`tasks`](super::tasks).
#[derive(Clone, Debug)]
pub struct TaskRecord {
    seen: Seen,
    now: u64,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// It was not polled yet.
    New,
    /// It is being polled.
    Running,
    /// It was woken, and not polled since.
    Runnable,
    /// Somebody has a waker of it.
    Waiting,
    /// Nobody has a waker of it, and it was not woken: see [`TaskRecord::is_forgotten`].
    NoWaker,
    /// Its future is being dropped.
    Dropping,
}

impl TaskRecord {
    pub(crate) fn of(seen: &Seen) -> Self {
        Self {
            seen: *seen,
            now: clock::coarse(),
        }
    }

    /// Its number.
    pub fn id(&self) -> TaskId {
        TaskId(self.seen.id)
    }

    /// The task that was being polled where it was made.
    pub fn parent(&self) -> Option<TaskId> {
        (self.seen.facts.parent != 0).then_some(TaskId(self.seen.facts.parent))
    }

    /// The name that it was given.
    pub fn name(&self) -> Option<&'static str> {
        Labels::of_number(self.seen.facts.name).get("")
    }

    /// The type of the future: for an `async` function, its path.
    pub fn type_name(&self) -> &'static str {
        (self.seen.facts.type_name)()
    }

    /// Where it was made.
    pub fn location(&self) -> &'static Location<'static> {
        self.seen.facts.location
    }

    /// What it is doing.
    pub fn state(&self) -> TaskState {
        match self.seen.state {
            State::New => TaskState::New,
            State::Running => TaskState::Running,
            State::Runnable => TaskState::Runnable,
            State::Waiting => TaskState::Waiting,
            State::NoWaker => TaskState::NoWaker,
            State::Dropping => TaskState::Dropping,
        }
    }

    /// The same.
    pub(crate) fn now(&self) -> State {
        self.seen.state
    }

    /// How many polls of it were begun.
    pub fn polls(&self) -> u32 {
        self.seen.polls
    }

    /// How long ago its last poll ended or, if it is new, it was made, to a few milliseconds;
    /// `None` while it is polled or dropped.
    pub fn waited(&self) -> Option<Duration> {
        match self.seen.state {
            State::Running | State::Dropping => None,
            _ => Some(Duration::from_nanos(
                self.now.saturating_sub(self.seen.facts.since),
            )),
        }
    }

    /// Its labels: where it waits, as they were there, with those of the spans that it is in; else
    /// as they were when its last poll ended.
    pub fn labels(&self) -> Labels {
        Labels::of_number(self.seen.facts.labels)
    }

    /// Where it waits: up to four stacks, one for each branch of a `select!`. Each is a list of
    /// return addresses, from the future that waits to the poll of the task. Empty while it runs,
    /// and if what it waits for has no waker of it.
    pub fn stacks(&self) -> impl Iterator<Item = &'static [usize]> {
        let named = self
            .seen
            .facts
            .stacks
            .into_iter()
            .filter(|name| name.0 != 0);
        named.map(|name| TABLE.stack(name))
    }

    /// The system's number of the thread that polls it, if one does.
    pub fn thread(&self) -> Option<u32> {
        (self.seen.facts.poller != 0).then_some(self.seen.facts.poller)
    }

    /// Whether it is polled by another task rather than by an executor.
    pub fn is_nested(&self) -> bool {
        self.seen.nested
    }

    /// Whether nothing is left that could wake it: it is suspended, nobody has a waker of it, and
    /// it was not woken since its last poll began. It will never be polled again.
    ///
    /// Never true of a task that was ever polled without having been woken, or by another task, nor
    /// of one that waits for something that will not happen.
    pub fn is_forgotten(&self) -> bool {
        self.seen.forgotten
    }
}
