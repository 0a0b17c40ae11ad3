//! What `plimsoll top` shows of a running program, read from its pages in intervals.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod watch;
