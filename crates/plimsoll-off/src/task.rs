//! Tasks: futures that are polled as they are, and are listed nowhere.

use crate::notice::no_values;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::label::Labels;
use crate::measure::TaskAccount;
use crate::stats::Histogram;

// Tokio's `JoinSet` has each method of Plimsoll's, with the same signature.
#[cfg(feature = "tokio")]
pub use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet, spawn, spawn_local};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[must_use = "futures do nothing unless polled"]
pub struct Tracked<F>(F, Option<TaskAccount>);

#[inline]
pub fn track<F: Future>(future: F) -> Tracked<F> {
    Tracked(future, None)
}

pub trait TrackExt: Future + Sized {
    #[inline]
    fn tracked(self) -> Tracked<Self> {
        track(self)
    }

    #[inline]
    fn tracked_as(self, name: &str) -> Tracked<Self> {
        track(self).named(name)
    }
}

impl<F: Future> TrackExt for F {}

impl<F> Tracked<F> {
    #[inline]
    pub fn named(self, _name: &str) -> Self {
        self
    }

    #[inline]
    pub fn label(self, _key: &str, _value: &str) -> Self {
        self
    }

    #[inline]
    pub fn id(&self) -> Option<TaskId> {
        None
    }

    pub fn account(&mut self) -> TaskAccount {
        self.1.get_or_insert_with(TaskAccount::new).clone()
    }

    #[inline]
    pub fn declared_by(self, _account: &crate::stats::Declared) -> Self {
        self
    }

    // An account also without the label, of which nothing is known here: callers that have set it rely on that.
    #[inline]
    pub fn account_by_label(&mut self, _key: &str) -> Option<TaskAccount> {
        Some(self.account())
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is never moved, is accessible only pinned, and is dropped in place. `Tracked` is `Unpin` only if
        // the future is.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}

// So that `drop(task)` is a drop, for lints of callers, too.
impl<F> Drop for Tracked<F> {
    #[inline]
    fn drop(&mut self) {}
}

impl<F> fmt::Debug for Tracked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "hyper")]
#[derive(Clone, Copy, Debug)]
pub struct Executor<E>(E);

#[cfg(feature = "hyper")]
impl<E> Executor<E> {
    #[inline]
    pub const fn new(inner: E) -> Self {
        Self(inner)
    }
}

#[cfg(feature = "hyper")]
impl<E, F> hyper::rt::Executor<F> for Executor<E>
where
    E: hyper::rt::Executor<Tracked<F>>,
    F: Future,
{
    #[inline]
    fn execute(&self, future: F) {
        self.0.execute(track(future));
    }
}

// Private, so that for callers the type is not visibly without values, of which lints would warn.
#[derive(Clone, Debug)]
pub struct TaskRecord(Infallible);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    New,
    Running,
    Runnable,
    Waiting,
    NoWaker,
    Dropping,
}

no_values! { TaskRecord {
    id: TaskId,
    parent: Option<TaskId>,
    name: Option<&'static str>,
    type_name: &'static str,
    location: &'static Location<'static>,
    spawner: &'static [usize],
    state: TaskState,
    polls: u32,
    waited: Option<Duration>,
    labels: Labels,
    thread: Option<u32>,
    is_nested: bool,
    is_forgotten: bool,
} }

impl TaskRecord {
    #[inline]
    pub fn stacks(&self) -> impl Iterator<Item = &'static [usize]> {
        std::iter::empty()
    }
}

#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskMetrics {
    pub created: u64,
    pub alive: u64,
    pub new: u64,
    pub runnable: u64,
    pub running: u64,
    pub waiting: u64,
    pub dropping: u64,
    pub exact: bool,
    pub future_bytes: u64,
    pub wake_to_poll: Histogram,
    pub poll_duration: Histogram,
}

pub fn metrics() -> TaskMetrics {
    TaskMetrics {
        created: 0,
        alive: 0,
        new: 0,
        runnable: 0,
        running: 0,
        waiting: 0,
        dropping: 0,
        exact: true,
        future_bytes: 0,
        wake_to_poll: Histogram::default(),
        poll_duration: Histogram::default(),
    }
}

#[inline]
pub fn current() -> Option<TaskId> {
    None
}

#[inline]
pub fn tasks() -> Vec<TaskRecord> {
    Vec::new()
}

#[inline]
pub fn for_each(_visit: impl FnMut(TaskRecord)) {}

#[inline]
pub fn set_stacks(_wanted: bool) -> bool {
    false
}

#[inline]
pub fn set_times(_wanted: bool) -> bool {
    false
}
