//! Go's `/debug/pprof/` pages: the same paths, parameters, headers, statuses and bodies, so that
//! whatever reads a Go program's reads this one's. `/metrics` is what Prometheus reads, in its text
//! format or as OpenMetrics; `/debug/vars` is `runtime.MemStats` as JSON, as Go's `expvar` has it.
//!
//! `PLIMSOLL=http=127.0.0.1:6060` and [`plimsoll::start`](crate::start) serve them from a thread of
//! Plimsoll's own; [`serve`] does that from code; [`handle`] answers a request for whoever has a
//! server already; and `router` (feature `axum`) is that for axum.
//!
//! # `/metrics`
//! Every metric of [`crate::metrics`], all of one gathering: `/gc/heap/allocs:bytes` is
//! `plimsoll_gc_heap_allocs_bytes_total`, and so on. Counters end with `_total`; a unit or a
//! `total` that would be said twice is said once; `/plimsoll/gc/pauses:seconds` is
//! `plimsoll_gc_completed_pauses_seconds_total`, apart from the histogram of nearly that name.
//! Histograms have fewer buckets than in [`crate::metrics`], whose counts are exact: times by
//! powers of four from 256 ns to 275 s, sizes by powers of two from 8 B to 32 KiB. `le` is the last
//! whole nanosecond or byte in a bucket. The sums of sizes are exact; those of times are estimated,
//! to an eighth. What [collectors](crate::gc) do is there for each of them as well, with the label
//! `collector`.
//!
//! The setting `go_names=on` adds the names that Go's client for Prometheus has by itself (`go_*`),
//! and those that all clients have (`process_*`, without the network's, which the system does not
//! count for a process).
//!
//! # `/debug/plimsoll/memory`
//! Where the resident memory went: [`crate::reconcile()`], as a table, or with `format=json` as
//! JSON.
//!
//! # `/debug/plimsoll/fragmentation`
//! What jemalloc's or mimalloc's pages have room for beyond the program's blocks, by size, and as
//! an estimate, whose blocks are in these: [`crate::stats::fragmentation()`]. With `format=json`
//! the table as JSON. The status is 501, with the reason, where the allocator cannot tell.
//!
//! # Access
//! The pages show the inside of the program and are not for the public: keep them on the loopback
//! address or behind something that asks for a password. [`start`](crate::start) warns if the
//! address is not a loopback address.
//!
//! A browser can be made to request them by any web page that its user looks at. So the server
//! refuses, with the status 403,
//! * a `Host` that is neither an IP address, `localhost` or a name below it, the host name in the
//!   address that it listens on, nor a name in the setting `http_hosts`: such a name may belong to
//!   another site and lead here (DNS rebinding);
//! * requests with `Sec-Fetch-Site: cross-site`, or with an `Origin` of another site.
//!
//! Requests without these headers are answered: they do not come from a browser of today. `router`
//! checks the latter two. [`handle`] and [`Request`] see no headers: a server of the program's own
//! that is reachable from its user's browser checks them itself.

mod accept;
#[cfg(any(feature = "http", feature = "axum"))]
pub(crate) mod access;
mod answer;
#[cfg(feature = "axum")]
mod axum;
mod fragmentation;
mod index;
mod memory;
mod metrics;
mod pages;
mod pprof;
mod query;
#[cfg(feature = "http")]
mod server;
mod vars;

use std::fmt;
use std::time::{Duration, Instant};

use self::answer::{Answer, Step};
use self::pprof::Delta;
use crate::{own, own_time};

#[cfg(feature = "axum")]
pub use self::axum::router;
#[cfg(feature = "http")]
pub use server::{Server, serve, serve_hosts};

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
    accept: &'a str,
    cancelled: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("query", &self.query)
            .field("accept", &self.accept)
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// `path` and `query`, what stands behind the `?` or empty, are as they came, with their
    /// escapes.
    pub fn new(method: &'a str, path: &'a str, query: &'a str) -> Self {
        Self {
            method,
            path,
            query,
            accept: "",
            cancelled: &|| false,
        }
    }

    /// The value of the header `Accept`, by which `/metrics` chooses the format; of several, all
    /// with commas between them. Without one, it is text.
    pub fn accept(self, accept: &'a str) -> Self {
        Self { accept, ..self }
    }

    /// What says that nobody waits for the answer any more. It is asked several times a second
    /// while a page waits, and ends that.
    pub fn cancelled(self, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { cancelled, ..self }
    }

    /// Answers; under `/debug/pprof/` as Go's `net/http/pprof` does. What is none of the pages is
    /// not found.
    ///
    /// With `seconds=N` among the parameters, it returns after that time: give it a thread that may
    /// wait.
    pub fn answer(&self) -> Response {
        let _own = own::scope();
        let answer = match self.begin() {
            Step::Answer(answer) => answer,
            Step::Wait(time, delta) if wait(time, self.cancelled) => finish(delta),
            Step::Wait(..) => pprof::error(500, "the client has gone"),
        };
        let response = answer.into();
        own::trim();
        response
    }

    /// Answers, except for a wait.
    fn begin(&self) -> Step {
        let (_own, _time) = (own::scope(), own_time::measure());
        let step = pages::answer(self);
        own::trim();
        step
    }
}

/// Answers a request whose wait is over.
fn finish(delta: Delta) -> Answer {
    let (_own, _time) = (own::scope(), own_time::measure());
    delta.finish()
}

/// Waits; false if it was cancelled.
fn wait(time: Duration, cancelled: &dyn Fn() -> bool) -> bool {
    /// How often a waiting request looks whether it is still wanted.
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    let begun = Instant::now();
    loop {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return true;
        }
        if cancelled() {
            return false;
        }
        std::thread::sleep(left.min(LOOK_AGAIN));
    }
}

/// Answers a request: the short form of [`Request::answer`].
pub fn handle(method: &str, path: &str, query: &str) -> Response {
    Request::new(method, path, query).answer()
}
