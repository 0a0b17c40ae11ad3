//! Counts of one instant for Plimsoll: the ledger, the size classes by which it counts, and the post-mortem file in which
//! the counts outlive the process.
//!
//! Programs use [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All items of this crate may
//! change in any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]
#![allow(
    clippy::new_without_default,
    reason = "statics need constant functions, and nothing here is generic over defaults"
)]
// Code that only modules of Linux use is compiled everywhere.
#![cfg_attr(
    not(all(target_os = "linux", not(plimsoll_portable_os))),
    allow(dead_code, unused_imports)
)]

pub mod ledger;
#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub mod postmortem_file;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
#[path = "postmortem_file/absent.rs"]
pub mod postmortem_file;
pub mod size_class;
