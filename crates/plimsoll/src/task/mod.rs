//! Tasks: futures that are in the profiles, with what they wait for.
//!
//! ```
//! use plimsoll::task::TrackExt;
//!
//! async fn serve() {}
//!
//! # fn main() {
//! # use std::{future::Future, pin::pin, task::{Context, Waker}};
//! // With any executor: the future that is spawned is a tracked one.
//! let task = serve().tracked_as("server").label("tenant", "acme");
//! # let _ = pin!(task).poll(&mut Context::from_waker(Waker::noop()));
//! # }
//! ```
//!
//! A tracked future hands its own waker to what it waits for. When that is cloned, to be kept until
//! there is something to wake the task for, the stack of the poll is taken: from the future that
//! waits, through each `async` function that awaits it, up to the task. Nothing in between has to
//! be annotated, and a suspended task is never polled in order to be looked at.
//!
//! # Executors
//! Any executor will do: it is the future that is tracked. `executor.spawn(future.tracked())` is
//! all that smol's `Executor`, `async-task`, `LocalPool` or tokio's `Runtime`, `Handle` and
//! `LocalSet` need:
//!
//! ```
//! use plimsoll::task::{TaskState, TrackExt, tasks};
//!
//! let executor = async_executor::Executor::new(); // smol's
//! let task = executor.spawn(std::future::pending::<()>().tracked_as("waits"));
//! assert!(executor.try_tick());
//! let mut tasks = tasks().into_iter();
//! let waits = tasks.find(|task| task.name() == Some("waits")).unwrap();
//! assert_eq!(waits.state(), TaskState::NoWaker);
//! drop(task);
//! ```
//!
//! With the feature `tokio`, `spawn`, `spawn_local` and `JoinSet` are here as well, with tokio's
//! signatures, so that it is enough to change the path: what they spawn is tracked. With the
//! feature `hyper`, `Executor` tracks what hyper spawns.
//!
//! What combinators poll with wakers of their own (`FuturesUnordered`, and `join_all` of more than
//! thirty) is seen as far as the combinator; to see further, track the futures in it.

mod current;
mod cut;
#[cfg(feature = "hyper")]
mod executor;
#[cfg(feature = "tokio")]
pub(crate) mod held;
mod inner;
#[cfg(feature = "tokio")]
mod join_set;
mod long_polls;
mod metrics;
mod record;
mod records;
mod registration;
mod slab;
mod slot;
#[cfg(feature = "tokio")]
mod spawn;
mod times;
mod tracked;
mod watched;

use std::fmt;
use std::sync::MutexGuard;

use crate::primitives::{AtomicU64, Ordering};
use cut::CUTS;

#[cfg(feature = "hyper")]
pub use executor::Executor;
#[cfg(feature = "tokio")]
pub use join_set::JoinSet;
pub(crate) use long_polls::{LongPolls, Watcher, lock_watcher, read as read_long_polls};
pub(crate) use metrics::{States, states};
pub use metrics::{TaskMetrics, metrics};
pub use record::{TaskRecord, TaskState};
pub(crate) use slot::{Seen, State};
#[cfg(feature = "tokio")]
pub use spawn::{spawn, spawn_local};
pub(crate) use times::{POLL_DURATION, WAKE_TO_POLL};
#[cfg(feature = "tokio")]
pub use tokio::task::{AbortHandle, JoinError, JoinHandle};
pub use tracked::{TrackExt, Tracked, track};

/// The number of a task, which no other task or thread of the process ever has. In the order in
/// which they were made by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Above what the system numbers threads with.
const FIRST: u64 = 10_000_001;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);

fn next_id() -> u64 {
    if NEXT.load(Ordering::Relaxed) == FIRST {
        crate::os::clock::prepare();
    }
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The sizes of all tracked futures that there are.
static FUTURE_BYTES: AtomicU64 = AtomicU64::new(0);

/// How many tasks were ever made.
pub(crate) fn created() -> u64 {
    NEXT.load(Ordering::Relaxed) - FIRST
}

/// The task that the calling thread polls; of several, the innermost.
pub fn current() -> Option<TaskId> {
    current::task().map(|slot| TaskId(slot.id()))
}

/// All tasks at one instant, in the order of their numbers. Nobody is stopped, and no task is
/// delayed but by the time it takes to note it, some 100 ns, once.
///
/// A task that was made after that instant is not in it, and one that was there is, as it was then.
/// If a task is in it, so is each one that was made before it and was not dropped before that
/// instant.
pub fn tasks() -> Vec<TaskRecord> {
    let mut tasks = Vec::new();
    for_each(|task| tasks.push(task));
    tasks.sort_by_key(TaskRecord::id);
    tasks
}

/// As [`tasks`], in no order, and without keeping them all: calls `visit` with each. Other profiles
/// of tasks wait until it is done with the last; nobody else does.
pub fn for_each(mut visit: impl FnMut(TaskRecord)) {
    read(|task| visit(TaskRecord::of(task)));
}

/// Calls `visit` with each task at one instant, in no order. False if there was no memory for it.
pub(crate) fn read(visit: impl FnMut(&Seen)) -> bool {
    CUTS.read(visit)
}

/// How many tasks there are now.
pub(crate) fn count() -> usize {
    (0..slab::SLAB.used())
        .filter(|&number| slab::SLAB.is_there(number) && slab::SLAB.slot(number).is_task())
        .count()
}

/// Keeps readers out until the guard is dropped: for a fork.
pub(crate) fn lock_cut() -> MutexGuard<'static, ()> {
    CUTS.lock()
}

/// In the child of a fork: nobody is in the middle of anything any more.
pub(crate) fn after_fork_in_child() {
    CUTS.after_fork_in_child();
    long_polls::after_fork_in_child();
}

/// Sets whether it is found out what tasks wait for, by taking their stacks, and returns whether it
/// was. It is, unless this says otherwise.
pub fn set_stacks(wanted: bool) -> bool {
    current::set_stacks(wanted)
}

/// Sets whether it is recorded how long tasks wait for a poll when they were woken, and how long
/// polls take, for [`metrics()`]; and returns whether it was. It is not, unless this says so: it
/// takes three readings of the clock for each wake and poll, and two additions. May be changed at
/// any time; what is recorded stays.
pub fn set_times(wanted: bool) -> bool {
    times::want_histograms(wanted)
}

/// See [`set_long_poll`](crate::profile::set_long_poll).
pub(crate) fn set_long_poll(nanoseconds: u64) -> u64 {
    long_polls::set_threshold(nanoseconds)
}

/// The same, as it is.
pub(crate) fn long_poll() -> u64 {
    long_polls::threshold()
}

/// How many tasks are in no profile, because there was no memory to note them.
pub(crate) fn lost() -> u64 {
    slab::SLAB.lost()
}

/// Bytes that tracked futures take where they are.
pub(crate) fn future_bytes() -> u64 {
    FUTURE_BYTES.load(Ordering::Relaxed)
}

/// Bytes of memory that tasks are noted in.
pub(crate) fn bytes() -> usize {
    slab::SLAB.bytes()
}
