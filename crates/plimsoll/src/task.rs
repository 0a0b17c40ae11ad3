//! Tasks: futures that appear in the profiles, with the places where they wait.
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
//! A tracked future passes its own waker to the futures that it polls. A future that starts to wait
//! clones the waker, and this clone captures the stack of the poll: from the waiting future,
//! through each `async` function that awaits it, up to the task. The code in between needs no
//! annotation, and a suspended task is never polled for inspection.
//!
//! # Executors
//! Any executor works, because it is the future that is tracked. `executor.spawn(future.tracked())`
//! suffices for smol's `Executor`, `async-task`, `LocalPool` and tokio's `Runtime`, `Handle` and
//! `LocalSet`:
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
//! With the feature `tokio`, this module also exports `spawn`, `spawn_local` and `JoinSet`, with
//! tokio's signatures: to track what they spawn, change only the path. With the feature `hyper`,
//! `Executor` tracks the futures that hyper spawns.
//!
//! Some combinators poll with separate wakers: `FuturesUnordered`, and `join_all` of more than
//! thirty futures. The captured stack then ends at the combinator; to see further, track the
//! futures in it.

#[cfg(feature = "hyper")]
pub use plimsoll_tasks::task::Executor;
#[cfg(feature = "tokio")]
pub use plimsoll_tasks::task::{AbortHandle, JoinError, JoinHandle, JoinSet, spawn, spawn_local};
pub use plimsoll_tasks::task::{
    TaskId, TaskMetrics, TaskRecord, TaskState, TrackExt, Tracked, current, for_each, metrics,
    set_stacks, tasks, track,
};

/// Sets whether times are recorded for which tasks wait for polls, and the durations of those polls, for [`metrics()`];
/// returns the previous setting. Disabled by default, since it costs three clock readings and two additions for each wake
/// and poll. May be changed at any time; recorded values stay.
pub fn set_times(wanted: bool) -> bool {
    plimsoll_profiles::profile::set_task_times(wanted)
}
