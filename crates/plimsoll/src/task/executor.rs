//! An executor for hyper that tracks what it is given.

use std::future::Future;
use std::panic::Location;

use super::Tracked;
use super::tracked::track_at;

/// An executor for hyper around another one: what hyper spawns with it, such as the streams of a
/// connection by HTTP/2, is in the task profile.
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
/// The tasks have the labels of the task that spawns them, if that is tracked: of the connection.
/// They are located where the executor was made, since what calls it is in hyper.
#[derive(Clone, Copy, Debug)]
pub struct Executor<E> {
    inner: E,
    location: &'static Location<'static>,
}

impl<E> Executor<E> {
    /// Tracks what is given to `inner` through this.
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
