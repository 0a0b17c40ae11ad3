//! Go's `/debug/pprof/` pages: the same paths, parameters, headers, statuses and bodies, so that
//! whatever reads a Go program's reads this one's.
//!
//! `PLIMSOLL=http=127.0.0.1:6060` and [`plimsoll::start`](crate::start) serve them from a thread of
//! Plimsoll's own; [`serve`] does that from code; [`handle`] answers a request for whoever has a
//! server already; and `router` (feature `axum`) is that for axum.
//!
//! The pages show the inside of the program and are not for the public: keep them on the loopback
//! address or behind something that asks for a password.

#[cfg(feature = "axum")]
mod axum;
mod pages;
mod pprof;
mod query;
#[cfg(feature = "http")]
mod server;

use crate::{own, own_time};

#[cfg(feature = "axum")]
pub use self::axum::router;
#[cfg(feature = "http")]
pub use server::{Server, serve};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// Names and values of headers; without `Content-Length`, which is that of `body`.
    pub headers: Vec<(&'static str, String)>,
    /// The body, also for `HEAD`, to which only its length is sent.
    pub body: Vec<u8>,
}

/// A request, as far as the pages look at it.
///
/// ```
/// use plimsoll::http::Request;
///
/// let response = Request::new("GET", "/debug/pprof/heap", "debug=1").answer();
/// assert_eq!(response.status, 200);
/// ```
#[derive(Clone, Copy)]
#[must_use = "it is answered by `answer`"]
pub struct Request<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    cancelled: &'a dyn Fn() -> bool,
}

impl<'a> Request<'a> {
    /// `path` and `query`, what stands behind the `?` or empty, are as they came, with their
    /// escapes.
    pub fn new(method: &'a str, path: &'a str, query: &'a str) -> Self {
        Self {
            method,
            path,
            query,
            cancelled: &|| false,
        }
    }

    /// What says that nobody waits for the answer any more. It is asked several times a second
    /// while a page waits, and ends that.
    pub fn cancelled(self, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { cancelled, ..self }
    }

    /// Answers, as Go's `net/http/pprof` does.
    ///
    /// With `seconds=N` among the parameters, it returns after that time: give it a thread that may
    /// wait.
    pub fn answer(&self) -> Response {
        let response = {
            let (_own, _time) = (own::scope(), own_time::measure());
            pages::answer(self)
        };
        own::trim();
        response
    }
}

/// Answers a request: the short form of [`Request::answer`].
pub fn handle(method: &str, path: &str, query: &str) -> Response {
    Request::new(method, path, query).answer()
}
