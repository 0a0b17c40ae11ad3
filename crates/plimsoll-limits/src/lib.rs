//! What Plimsoll does when memory becomes scarce or idle: the soft limit with its thresholds, and free memory that is
//! returned to the system.
//!
//! Programs use [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All other items may change in
//! any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod give_back;
pub mod memory_limit;
