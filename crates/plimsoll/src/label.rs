//! Labels, which state the purpose of a thread's or task's work.
//!
//! ```
//! use plimsoll::label;
//!
//! let _tenant = label::with([("tenant", "acme"), ("request", "search")]);
//! // What happens here, on this thread, is labelled so.
//! assert_eq!(label::current().get("tenant"), Some("acme"));
//! ```
//!
//! All samples of all profiles carry labels: allocations (whichever thread frees them), waits,
//! releases for which others waited, threads and tasks. One filter,
//! `go tool pprof -tagfocus=tenant=acme`, thus shows one tenant's part of each profile.
//!
//! A set of labels never changes and is sorted by key. [Tasks](crate::task) begin with the labels
//! of the thread or task that creates them, and later changes of one do not reach the other. So do
//! threads made by [`crate::thread::spawn`]. All other threads begin without labels, because a pool
//! starts its threads during one request and they then serve all requests.
//!
//! With the feature `tracing`, `TracingLayer` adds the spans of a thread or a task as labels.
//!
//! Each set is stored once and never freed, so that a label adds no cost to an event. Use labels
//! with some hundreds of values, such as tenants and routes, not request numbers. The bounds are
//! [`MAX_SETS`], and 16 MiB of labels; keys and values are cut at 1 KiB. Work under one more set has the label
//! `labels` with the value `[other labels]` alone: it is charged to no other tenant. Such sets are counted in
//! [`LostEvents::labels`](crate::profile::LostEvents::labels), and the first one is a warning on standard error.
//!
//! The table of stacks separates allocations under different labels. Each place needs a bucket
//! there for each set of labels.

#[cfg(feature = "tracing")]
pub use plimsoll_core::label::TracingLayer;
pub use plimsoll_core::label::{Guard, Labels, MAX_SETS, current, set, with};
