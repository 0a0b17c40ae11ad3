//! Tokio's functions that spawn, for tasks that are tracked.

use std::future::Future;

use tokio::task::JoinHandle;

use super::track;

/// [`tokio::spawn`], of a future that is [tracked](track).
///
/// For a name or labels of its own, `tokio::spawn(future.tracked_as("name"))` is the same; so is
/// `handle.spawn(future.tracked())`, for what has no companion here.
///
/// # Panics
/// As tokio's, where there is no runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(track(future))
}

/// [`tokio::task::spawn_local`], of a future that is [tracked](track).
///
/// # Panics
/// As tokio's, outside of a `LocalSet`.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(track(future))
}
