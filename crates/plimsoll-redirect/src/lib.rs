//! Redirects functions of a program to hooks before it begins, for Plimsoll.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod redirect;
