//! Tokio's spawn functions, for tracked tasks.

use std::future::Future;

use tokio::task::JoinHandle;

use super::track;

/// Spawns a future that is [tracked](track), by [`tokio::spawn`].
///
/// To set a name or labels, use `tokio::spawn(future.tracked_as("name"))`. Likewise, use
/// `handle.spawn(future.tracked())` for functions without a counterpart here.
///
/// # Panics
/// Panics as [`tokio::spawn`] does, outside of a runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(track(future))
}

/// Spawns a future that is [tracked](track), by [`tokio::task::spawn_local`].
///
/// # Panics
/// Panics as [`tokio::task::spawn_local`] does, outside of a `LocalSet`.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(track(future))
}
