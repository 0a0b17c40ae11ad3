//! An executor for hyper that tracks its futures.

use std::future::Future;
use std::panic::Location;

use super::Tracked;
use super::tracked::track_at;

/// An executor for hyper that wraps another one. The futures that hyper spawns with it, such as the
/// streams of an HTTP/2 connection, are in the task profile.
///
/// ```
/// use hyper::server::conn::http2;
/// use hyper_util::rt::TokioExecutor;
/// use plimsoll::task::Executor;
///
/// let server = http2::Builder::new(Executor::new(TokioExecutor::new()));
/// # let _ = server;
/// ```
///
/// The tasks have the labels of the task that spawns them, the connection, if that is tracked.
/// Their location is the call of [`Executor::new`], since the direct caller is in hyper.
#[derive(Clone, Copy, Debug)]
pub struct Executor<E> {
    inner: E,
    location: &'static Location<'static>,
}

impl<E> Executor<E> {
    /// Creates an executor that tracks each future and passes it to `inner`.
    #[track_caller]
    pub const fn new(inner: E) -> Self {
        Self {
            inner,
            location: Location::caller(),
        }
    }
}

impl<E, F> hyper::rt::Executor<F> for Executor<E>
where
    E: hyper::rt::Executor<Tracked<F>>,
    F: Future,
{
    fn execute(&self, future: F) {
        self.inner.execute(track_at(future, self.location));
    }
}
