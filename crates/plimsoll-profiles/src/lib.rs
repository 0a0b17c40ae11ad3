//! The kinds of profiles and reading them, with their formats; metrics, measurements and CPU samples.
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

pub mod cpu;
pub mod dhat;
pub mod export;
#[cfg(all(feature = "interpose", target_os = "linux", not(plimsoll_portable_os)))]
pub mod hook;
#[cfg(all(
    feature = "interpose",
    not(all(target_os = "linux", not(plimsoll_portable_os)))
))]
#[path = "hook/absent.rs"]
pub mod hook;
pub mod maintenance;
pub mod measure;
pub mod metrics;
pub mod profile;
pub mod symbol;
