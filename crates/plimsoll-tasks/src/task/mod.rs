//! Tasks: futures that appear in the profiles, with the places where they wait.
//!
//! The page of `plimsoll::task` describes them for programs. A tracked future passes its own waker to the futures
//! that it polls. A future that starts to wait clones the waker, and this clone captures the stack of the poll. Each
//! task has a slot, of which readings make a consistent copy without stopping the task.

mod current;
#[cfg(feature = "hyper")]
mod executor;
mod identity;
mod inner;
#[cfg(feature = "tokio")]
mod join_set;
pub mod lock_owners;
mod long_polls;
mod metrics;
mod record;
mod records;
mod registration;
mod slab;
mod slot;
mod snapshot;
#[cfg(feature = "tokio")]
mod spawn;
mod spawners;
mod times;
mod tracked;
mod watched;

use std::fmt;

use plimsoll_sys::primitives::{AtomicU64, Ordering};
use snapshot::CUTS;

#[cfg(feature = "hyper")]
pub use executor::Executor;
pub use identity::Description;
#[cfg(feature = "tokio")]
pub use join_set::JoinSet;
pub use long_polls::{LongPolls, read as read_long_polls};
pub use metrics::{States, states};
pub use metrics::{TaskMetrics, metrics};
pub use record::{TaskRecord, TaskState};
pub use slot::{Seen, State};
#[cfg(feature = "tokio")]
pub use spawn::{spawn, spawn_local};
pub use times::{POLL_DURATION, WAKE_TO_POLL};
#[cfg(feature = "tokio")]
pub use tokio::task::{AbortHandle, JoinError, JoinHandle};
pub use tracked::{TrackExt, Tracked, track};

/// The number of a task. No other task or thread of the process ever has it. The tasks that one
/// thread creates have ascending numbers.
///
/// ```
/// use plimsoll::task::{self, TrackExt};
///
/// # fn block_on<F: Future>(task: F) -> F::Output {
/// #     use std::task::{Context, Poll, Waker};
/// #     match std::pin::pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
/// #         Poll::Ready(output) => output,
/// #         Poll::Pending => unreachable!(),
/// #     }
/// # }
/// let task = async { task::current() }.tracked();
/// let id = task.id();
/// assert_eq!(block_on(task), id);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first task number, which is above all thread IDs of the system.
const FIRST: u64 = 10_000_001;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);

fn next_id() -> u64 {
    if NEXT.load(Ordering::Relaxed) == FIRST {
        plimsoll_sys::os::clock::prepare();
    }
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The sum of the sizes of all existing tracked futures.
static FUTURE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of tasks ever created.
pub fn created() -> u64 {
    NEXT.load(Ordering::Relaxed) - FIRST
}

/// Returns the task that the calling thread polls; the innermost, if tasks are nested.
pub fn current() -> Option<TaskId> {
    current::task().map(|slot| TaskId(slot.id()))
}

/// Returns the words of the [`Description`] of the task that the calling thread polls; `None`
/// outside of tracked tasks. For signal handlers.
pub fn polled_words() -> Option<[usize; 2]> {
    current::task().map(identity::words)
}

/// Returns all tasks at one instant, in the order of their numbers. No thread is stopped, and a
/// task is delayed only by the time it takes to record it, some 100 ns, once.
///
/// The result contains no task that was created after that instant. It contains each task that
/// existed, in its state at that instant. If it contains a task, it contains each task that was
/// created before that one and not dropped before that instant. Where [`TaskMetrics::exact`] is false, the tasks may be of
/// several instants.
pub fn tasks() -> Vec<TaskRecord> {
    let mut tasks = Vec::new();
    for_each(|task| tasks.push(task));
    tasks.sort_by_key(TaskRecord::id);
    tasks
}

/// Calls `visit` with each task at one instant, as in [`tasks`], but in no order and without
/// storing all of them. Other profiles of tasks wait until the last task is visited; no other
/// thread waits.
pub fn for_each(mut visit: impl FnMut(TaskRecord)) {
    read(|task| visit(TaskRecord::from_seen(task)));
}

/// Calls `visit` with each task at one instant, in no order; with none if out of memory.
pub fn read(visit: impl FnMut(&Seen)) {
    CUTS.read(visit);
}

/// Calls `visit` with at most `most` tasks, each in its present state, and with the number of tasks for
/// which each stands. Chooses slots by `random`, each with the same probability; those without a task
/// stand for others without one.
pub fn read_some(most: usize, random: u64, mut visit: impl FnMut(&TaskRecord, f64)) {
    let used = slab::SLAB.used() as usize;
    let count = used.min(most);
    for at in 0..count {
        let number = ((random as usize).wrapping_add(at * used / count) % used) as u32;
        if slab::SLAB.is_there(number) {
            if let Some(seen) = slab::SLAB.slot(number).read() {
                visit(&TaskRecord::from_seen(&seen), used as f64 / count as f64);
            }
        }
    }
}

/// Returns the current number of tasks.
pub fn count() -> usize {
    (0..slab::SLAB.used())
        .filter(|&number| slab::SLAB.is_there(number) && slab::SLAB.slot(number).is_task())
        .count()
}

/// Sets whether to capture the stacks of tasks where they wait; returns the previous setting.
/// Enabled by default.
pub fn set_stacks(wanted: bool) -> bool {
    current::set_stacks(wanted)
}

/// Sets whether to record the time from wakes to polls and the duration of polls, for
/// [`metrics()`]; returns the previous setting. Disabled by default, since it costs three clock
/// readings and two additions for each wake and poll. May be changed at any time; recorded values
/// stay.
pub fn set_times(wanted: bool) -> bool {
    times::want_histograms(wanted)
}

/// Returns whether times are recorded.
pub fn times() -> bool {
    times::wants_histograms()
}

/// Sets the threshold: see `plimsoll::profile::set_long_poll`.
pub fn set_long_poll(nanoseconds: u64) -> u64 {
    long_polls::set_threshold(nanoseconds)
}

/// Returns the threshold of long polls in nanoseconds; 0 if there is none.
pub fn long_poll() -> u64 {
    long_polls::threshold()
}

/// Returns the number of tasks that are in no profile, because no memory was available to track
/// them.
pub fn lost() -> u64 {
    slab::SLAB.lost()
}

/// Returns the sum of the sizes of tracked futures, in bytes.
pub fn future_bytes() -> u64 {
    FUTURE_BYTES.load(Ordering::Relaxed)
}

/// Returns the bytes of memory that hold the state of tasks.
pub fn bytes() -> usize {
    slab::SLAB.bytes()
}
