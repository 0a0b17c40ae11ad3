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

#[cfg(feature = "axum")]
pub use plimsoll_serve::http::router;
#[cfg(feature = "tower")]
pub use plimsoll_serve::http::{Body, Service, service};
#[cfg(feature = "http")]
pub use plimsoll_serve::http::{
    Clients, Server, UnixServer, serve, serve_hosts, serve_to, serve_unix,
};
pub use plimsoll_serve::http::{Request, Response, handle};
