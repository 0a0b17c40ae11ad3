//! `plimsoll top`: the terminal view of a running program.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod top;
