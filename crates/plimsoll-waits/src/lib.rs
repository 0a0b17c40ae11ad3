//! Waits of threads and tasks: who waits for what, who holds it, and who is charged for it; locks and channels that
//! report their waits; deadlocks and leaks.
//!
//! Programs use [`plimsoll`](https://docs.rs/plimsoll), which re-exports [`sync`]. All other items may change in any
//! version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod contention;
pub mod leak;
pub mod sync;
