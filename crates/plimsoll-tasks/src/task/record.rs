//! The public record of a task.

use std::panic::Location;
use std::time::Duration;

use plimsoll_sys::os::clock;

use super::{Seen, State, TaskId, spawners};
use plimsoll_core::label::Labels;
use plimsoll_core::stack::TABLE;

/// A task at the instant of [`tasks`](super::tasks).
///
/// ```
/// use plimsoll::task::{TrackExt, tasks};
///
/// let future = async {}.tracked_as("server").label("tenant", "acme");
/// let tasks = tasks();
/// let task = tasks.iter().find(|task| Some(task.id()) == future.id()).unwrap();
/// println!("{} of {}, polled {} times", task.type_name(), task.location(), task.polls());
/// assert_eq!(task.name(), Some("server"));
/// assert_eq!(task.labels().get("tenant"), Some("acme"));
/// ```
#[derive(Clone, Debug)]
pub struct TaskRecord {
    seen: Seen,
    now: u64,
}

/// The activity of a task.
///
/// ```
/// use plimsoll::task::{TaskState, TrackExt, tasks};
///
/// let mut future = Box::pin(std::future::pending::<()>().tracked());
/// let id = future.id();
/// let state = || tasks().into_iter().find(|task| Some(task.id()) == id).unwrap().state();
/// assert_eq!(state(), TaskState::New);
/// # use std::task::{Context, Waker};
/// # assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
/// // After its first poll, in which it cloned no waker:
/// assert_eq!(state(), TaskState::NoWaker);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// It was never polled.
    New,
    /// It is being polled.
    Running,
    /// It was woken, and has not been polled since.
    Runnable,
    /// It is suspended, and a waker of it exists.
    Waiting,
    /// No waker of it exists, and it was not woken: see [`TaskRecord::is_forgotten`].
    NoWaker,
    /// Its future is being dropped.
    Dropping,
}

impl TaskRecord {
    /// Returns the record of a task that was just read.
    pub fn from_seen(seen: &Seen) -> Self {
        Self {
            seen: *seen,
            now: clock::coarse(),
        }
    }

    /// Returns the task's number.
    pub fn id(&self) -> TaskId {
        TaskId(self.seen.id)
    }

    /// Returns the task that was being polled where this one was created.
    pub fn parent(&self) -> Option<TaskId> {
        (self.seen.facts.parent != 0).then_some(TaskId(self.seen.facts.parent))
    }

    /// Returns the task's name, if it was set.
    pub fn name(&self) -> Option<&'static str> {
        Labels::of_number(self.seen.facts.name).get("")
    }

    /// Returns the type of the future; for an `async` function, its path.
    pub fn type_name(&self) -> &'static str {
        (self.seen.facts.type_name)()
    }

    /// Returns the place in the code where the task was created.
    pub fn location(&self) -> &'static Location<'static> {
        self.seen.facts.location
    }

    /// Returns the stack at which the first task of this place was created; empty if it is unknown.
    pub fn spawner(&self) -> &'static [usize] {
        spawners::stack_of(self.location())
    }

    /// Returns the task's activity.
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

    /// Returns the task's activity in its internal form.
    pub fn now(&self) -> State {
        self.seen.state
    }

    /// Returns how many polls of the task have begun.
    pub fn polls(&self) -> u32 {
        self.seen.polls
    }

    /// Returns the time since its last poll ended or, for a new task, since its creation, to a few
    /// milliseconds. `None` while it is polled or dropped.
    pub fn waited(&self) -> Option<Duration> {
        match self.seen.state {
            State::Running | State::Dropping => None,
            _ => Some(Duration::from_nanos(
                self.now.saturating_sub(self.seen.facts.since),
            )),
        }
    }

    /// Returns the labels. For a waiting task, these are the labels where it waits, including those
    /// of its spans; otherwise the labels at the end of its last poll.
    pub fn labels(&self) -> Labels {
        Labels::of_number(self.seen.facts.labels)
    }

    /// Returns where the task waits: up to four stacks, one for each branch of a `select!`. Each is
    /// a list of return addresses, from the waiting future to the poll of the task. Empty while the
    /// task runs, and if the awaited object has no waker of it.
    pub fn stacks(&self) -> impl Iterator<Item = &'static [usize]> {
        let named = self
            .seen
            .facts
            .stacks
            .into_iter()
            .filter(|name| name.0 != 0);
        named.map(|name| TABLE.stack(name))
    }

    /// Returns the system's ID of the thread that polls it, if any.
    pub fn thread(&self) -> Option<u32> {
        (self.seen.facts.poller != 0).then_some(self.seen.facts.poller)
    }

    /// Returns whether another task polls it, rather than an executor.
    pub fn is_nested(&self) -> bool {
        self.seen.nested
    }

    /// Returns whether nothing can wake the task: it is suspended, no waker of it exists, and it
    /// was not woken since its last poll began. It will never be polled again.
    ///
    /// Always false for a task that was ever polled without a wake, or by another task. Also false
    /// for a task that waits for an event that will not happen.
    pub fn is_forgotten(&self) -> bool {
        self.seen.forgotten
    }
}
