//! Tokio's `JoinSet`, for tracked tasks.

use std::fmt;
use std::future::Future;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, Id, JoinError, LocalSet};

use super::track;

/// A [`tokio::task::JoinSet`] of futures that are [tracked](track).
///
/// It has tokio's methods with the same signatures, so only the path has to change. Each method
/// behaves as tokio's, and panics in the same cases. The location of a task is the call of the
/// method that spawned it.
///
/// ```
/// use plimsoll::task::JoinSet;         // was: tokio::task::JoinSet
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let mut set = JoinSet::new();
/// set.spawn(async { 1 });
/// assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
/// # });
/// ```
pub struct JoinSet<T>(tokio::task::JoinSet<T>);

impl<T> JoinSet<T> {
    /// See [`tokio::task::JoinSet::new`].
    pub fn new() -> Self {
        Self(tokio::task::JoinSet::new())
    }

    /// See [`tokio::task::JoinSet::len`].
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// See [`tokio::task::JoinSet::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: 'static> JoinSet<T> {
    /// See [`tokio::task::JoinSet::spawn`].
    #[track_caller]
    pub fn spawn<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T>,
        F: Send + 'static,
        T: Send,
    {
        self.0.spawn(track(task))
    }

    /// See [`tokio::task::JoinSet::spawn_on`].
    #[track_caller]
    pub fn spawn_on<F>(&mut self, task: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T>,
        F: Send + 'static,
        T: Send,
    {
        self.0.spawn_on(track(task), handle)
    }

    /// See [`tokio::task::JoinSet::spawn_local`].
    #[track_caller]
    pub fn spawn_local<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T>,
        F: 'static,
    {
        self.0.spawn_local(track(task))
    }

    /// See [`tokio::task::JoinSet::spawn_local_on`].
    #[track_caller]
    pub fn spawn_local_on<F>(&mut self, task: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T>,
        F: 'static,
    {
        self.0.spawn_local_on(track(task), local_set)
    }

    /// See [`tokio::task::JoinSet::spawn_blocking`]. The closure runs on a thread and is not
    /// tracked.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T,
        F: Send + 'static,
        T: Send,
    {
        self.0.spawn_blocking(f)
    }

    /// See [`tokio::task::JoinSet::spawn_blocking_on`]. The closure runs on a thread and is not
    /// tracked.
    #[track_caller]
    pub fn spawn_blocking_on<F>(&mut self, f: F, handle: &Handle) -> AbortHandle
    where
        F: FnOnce() -> T,
        F: Send + 'static,
        T: Send,
    {
        self.0.spawn_blocking_on(f, handle)
    }

    /// See [`tokio::task::JoinSet::join_next`].
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.0.join_next().await
    }

    /// See [`tokio::task::JoinSet::join_next_with_id`].
    pub async fn join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        self.0.join_next_with_id().await
    }

    /// See [`tokio::task::JoinSet::try_join_next`].
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.0.try_join_next()
    }

    /// See [`tokio::task::JoinSet::try_join_next_with_id`].
    pub fn try_join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        self.0.try_join_next_with_id()
    }

    /// See [`tokio::task::JoinSet::shutdown`].
    pub async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }

    /// See [`tokio::task::JoinSet::join_all`].
    pub async fn join_all(self) -> Vec<T> {
        self.0.join_all().await
    }

    /// See [`tokio::task::JoinSet::abort_all`].
    pub fn abort_all(&mut self) {
        self.0.abort_all();
    }

    /// See [`tokio::task::JoinSet::detach_all`].
    pub fn detach_all(&mut self) {
        self.0.detach_all();
    }

    /// See [`tokio::task::JoinSet::poll_join_next`].
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.0.poll_join_next(cx)
    }

    /// See [`tokio::task::JoinSet::poll_join_next_with_id`].
    pub fn poll_join_next_with_id(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(Id, T), JoinError>>> {
        self.0.poll_join_next_with_id(cx)
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T>,
    F: Send + 'static,
    T: Send + 'static,
{
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        set.extend(futures);
        set
    }
}

impl<T, F> Extend<F> for JoinSet<T>
where
    F: Future<Output = T>,
    F: Send + 'static,
    T: Send + 'static,
{
    #[track_caller]
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.spawn(future);
        }
    }
}
