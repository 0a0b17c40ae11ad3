//! Statistics: memory, waits, processors and collectors, exact and read without stopping a thread; their comparison with
//! the kernel's figures, and with the limits of control groups.
//!
//! Programs use [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All other items may change in
//! any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]
// Code that only modules of Linux use is compiled everywhere.
#![cfg_attr(
    not(all(target_os = "linux", not(plimsoll_portable_os))),
    allow(dead_code, unused_imports)
)]

pub mod gc;
pub mod json;
pub mod stats;
