//! Tracked tasks, exact counts of what they allocate, and memory that the program declares.
//!
//! Programs use these by [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All other items may
//! change in any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod account;
pub mod declared;
pub mod measured;
pub mod recording;
pub mod task;
