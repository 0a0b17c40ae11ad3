//! Go's `/debug/pprof/` pages, with the same paths, parameters, headers, statuses and bodies, so
//! that tools for Go programs read them. `/metrics` serves Prometheus, in its text format or as
//! OpenMetrics. `/debug/vars` is `runtime.MemStats` as JSON, like Go's `expvar`.
//!
//! `PLIMSOLL=http=127.0.0.1:6060` and `plimsoll::start` serve the pages from a
//! thread of Plimsoll; [`serve`] does so from code. [`handle`] answers one request, for programs
//! with their own server, and [`Request`] does so with its headers. `service` (feature `tower`) is a
//! service of tower, and `router` (feature `axum`) a router of axum.
//!
//! # `/metrics`
//! Every metric of [`plimsoll_profiles::metrics`], all of one gathering: `/gc/heap/allocs:bytes` is
//! `plimsoll_gc_heap_allocs_bytes_total`, and so on. Counters end with `_total`. A unit or a
//! `total` occurs only once in a name. `/plimsoll/gc/pauses:seconds` is
//! `plimsoll_gc_completed_pauses_seconds_total`, to distinguish it from the histogram of nearly
//! that name. Histograms have fewer buckets than in [`plimsoll_profiles::metrics`], with exact counts. Times
//! have powers of four from 256 ns to 275 s, sizes have powers of two from 8 B to 32 KiB. `le` is
//! the last whole nanosecond or byte in a bucket. The sums of sizes are exact; those of times are
//! estimated, to an eighth. Each [collector](plimsoll_stats::gc) also has metrics with the label
//! `collector`.
//!
//! The setting `go_names=on` adds the default names of Go's client for Prometheus (`go_*`), and
//! those that all clients have (`process_*`). The network's are missing, because the system does
//! not count traffic for each process.
//!
//! # `/debug/plimsoll/memory`
//! The distribution of the resident memory: [`plimsoll_stats::stats::reconcile()`], as a table, or with
//! `format=json` as JSON.
//!
//! # `/debug/plimsoll/fragmentation`
//! The free space in jemalloc's or mimalloc's pages, by size, with an estimate of the sites whose
//! blocks are in these pages: [`plimsoll_stats::stats::fragmentation()`]. With `format=json`, the table as
//! JSON. If the allocator does not report its pages, the status is 501, with the reason.
//!
//! # `/debug/plimsoll/`
//! A page for browsers, over all of these: charts of the history, flame graphs and tables of every
//! profile, resident memory, threads and tasks, growth. It loads nothing from elsewhere.
//!
//! # `/debug/plimsoll/growth`, `/debug/plimsoll/history`, `/debug/plimsoll/threads`
//! The [growth](crate::history::growth()) of allocation sites, the [history](crate::history), and all
//! threads and tasks, as JSON.
//!
//! # Parameters
//! Each parameter that changes the meaning of an answer is honoured, or refused with the status 400 and
//! its name. The pages that Go has take `seconds`, `debug` and `gc` as Go does, and ignore names that
//! neither Go nor Plimsoll knows. Pages below `/debug/plimsoll/` refuse all names but their own.
//!
//! # Access
//! The pages show the inside of the program and are not for the public. Keep them on the loopback
//! address, at a path that only the same user can connect to (`serve_unix`, `http=unix:PATH`), or
//! require a token (`Clients::token`, `http_token`). `start` warns if the address is
//! not a loopback address and no token is required.
//!
//! Any web page that a user opens can make the browser request them. So the server refuses the
//! following requests, with the status 403:
//! * A `Host` other than an IP address, `localhost` or a name below it, the host name in the
//!   server's address, or a name in the setting `http_hosts`. Such a name may belong to another
//!   site and resolve to this address (DNS rebinding).
//! * `Sec-Fetch-Site: cross-site`, or an `Origin` of another site.
//!
//! Requests without these headers are answered: browsers keep such answers from pages of other sites. `router`,
//! `service` and [`Request::headers`] check the latter two headers. [`Request::loopback_only`] also
//! checks `Host`. [`handle`] sees no headers: if the program's own server is reachable from its
//! user's browser, it must check them.

mod accept;
#[cfg(feature = "axum")]
mod axum;
mod browser;
#[cfg(feature = "http")]
#[cfg_attr(not(unix), allow(dead_code, reason = "no server reads the fields"))]
mod clients;
mod fragmentation;
mod growth;
mod headers;
mod history;
mod index;
mod memory;
mod metrics;
mod pages;
mod parameters;
mod pprof;
#[cfg(feature = "http")]
#[cfg_attr(not(unix), path = "absent.rs")]
mod server;
#[cfg(feature = "tower")]
mod service;
#[cfg(feature = "tower")]
mod spawn;
mod symbol_names;
mod threads;
mod vars;

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use plimsoll_server::answer::{Answer, Step};

use self::headers::{Headers, Peers};
use self::pprof::Delta;
use plimsoll_core::{internal_heap, internal_scope, overhead};

#[cfg(feature = "axum")]
pub use self::axum::router;
#[cfg(feature = "tower")]
pub use self::service::{Body, Service, service};
#[cfg(feature = "http")]
pub use clients::Clients;
#[cfg(feature = "http")]
pub use server::{Server, UnixServer, serve, serve_hosts, serve_to, serve_unix};

/// The answer to a request.
///
/// ```
/// let response = plimsoll::http::handle("GET", "/debug/pprof/heap", "debug=1");
/// assert_eq!(response.status, 200);
/// assert!(response.body.starts_with(b"heap profile: "));
/// for (name, value) in &response.headers {
///     println!("{name}: {value}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// Names and values of headers; without `Content-Length`, which is the length of `body`.
    pub headers: Vec<(&'static str, String)>,
    /// The body. It is also present for `HEAD`, to which only its length is sent.
    pub body: Vec<u8>,
}

/// A request, as far as the pages use it.
///
/// ```
/// use plimsoll::http::Request;
///
/// let response = Request::new("GET", "/debug/pprof/heap", "debug=1").answer();
/// assert_eq!(response.status, 200);
/// ```
#[derive(Clone)]
#[must_use = "it is answered by `answer`"]
pub struct Request<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    body: &'a [u8],
    prefix: &'a str,
    headers: Headers,
    peers: Peers,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("query", &self.query)
            .field("body", &self.body)
            .field("prefix", &self.prefix)
            .field("headers", &self.headers)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// Creates a request. `path` and `query`, the part behind the `?` or empty, are passed as
    /// received, with their escapes.
    pub fn new(method: &'a str, path: &'a str, query: &'a str) -> Self {
        Self {
            method,
            path,
            query,
            body: &[],
            prefix: "",
            headers: Headers::default(),
            peers: Peers::All,
            cancelled: &|| false,
        }
    }

    /// Sets the body. Only `/debug/pprof/symbol` reads it, for the method `POST`: Go's tool sends addresses in
    /// it. The default is empty.
    pub fn body(self, body: &'a [u8]) -> Self {
        Self { body, ..self }
    }

    /// Sets the value of the header `Accept`, by which `/metrics` selects the format; several
    /// headers are joined by commas. The default is text.
    pub fn accept(mut self, accept: &str) -> Self {
        let _own = internal_scope::scope();
        self.headers.accept = Some(accept.to_owned());
        self
    }

    /// Adds the request's headers. `/metrics` selects its format by `Accept`. Requests that a browser
    /// sends from a page of another site are refused with the status 403. Other headers are ignored.
    ///
    /// ```
    /// use plimsoll::http::Request;
    ///
    /// let request = Request::new("GET", "/metrics", "").headers([("Sec-Fetch-Site", "cross-site")]);
    /// assert_eq!(request.answer().status, 403);
    /// ```
    pub fn headers<N: AsRef<str>, V: AsRef<[u8]>>(
        mut self,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let _own = internal_scope::scope();
        for (name, value) in headers {
            self.headers.add(name.as_ref(), value.as_ref());
        }
        self
    }

    /// Refuses the request with the status 403 unless it comes from this machine. `peer` is the
    /// address of the client's socket. If it is unknown, the request is refused.
    ///
    /// A request with a header of a reverse proxy (`Forwarded`, `X-Forwarded-For`, `X-Real-IP`) is
    /// refused. Its `Host` must be an address or a loopback name, against DNS rebinding. Both need
    /// [`Request::headers`]. A proxy on this machine that adds no such header remains unnoticed.
    pub fn loopback_only(self, peer: Option<IpAddr>) -> Self {
        Self {
            peers: Peers::Loopback(peer),
            ..self
        }
    }

    /// Sets the path below which the program's server has the pages, such as `/internal`. The heap
    /// profile is then at `/internal/debug/pprof/heap`, and `/internal` leads to the index. For other
    /// paths, the status is 404.
    pub fn below(self, prefix: &'a str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        Self { prefix, ..self }
    }

    /// Sets a function that returns true once no client waits for the answer. A page that waits
    /// calls it several times a second, and stops when it returns true.
    pub fn cancelled(self, cancelled: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { cancelled, ..self }
    }

    /// Answers the request; under `/debug/pprof/` as Go's `net/http/pprof` does. For other paths
    /// than those of the pages, the status is 404.
    ///
    /// With `seconds=N` among the parameters, it returns after that time: call it on a thread that
    /// may block.
    pub fn answer(&self) -> Response {
        let _own = internal_scope::scope();
        let answer = match self.begin() {
            Step::Answer(answer) => answer,
            Step::Wait(time, delta) if wait(time, self.cancelled) => finish(delta),
            Step::Wait(..) => Answer::error(500, "the client has gone"),
        };
        let response = answer.into();
        internal_heap::trim();
        response
    }

    /// Computes the answer, except for a wait.
    fn begin(&self) -> Step<Delta> {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        let step = match self.headers.check(self.peers) {
            Ok(()) => pages::answer(self),
            Err((status, text)) => Answer::error(status, &text).into(),
        };
        internal_heap::trim();
        step
    }
}

/// Computes the answer to a request whose wait is over.
fn finish(delta: Delta) -> Answer {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    delta.finish()
}

/// Waits. Returns false if the wait was cancelled.
fn wait(time: Duration, cancelled: &dyn Fn() -> bool) -> bool {
    /// The interval at which a waiting request checks for cancellation.
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

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        Self {
            status: answer.status,
            headers: answer.headers,
            body: answer.body.into_bytes(),
        }
    }
}

/// Answers a request: the short form of [`Request::answer`].
pub fn handle(method: &str, path: &str, query: &str) -> Response {
    Request::new(method, path, query).answer()
}
