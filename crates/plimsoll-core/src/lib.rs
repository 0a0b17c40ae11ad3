//! The core of Plimsoll: counts of all allocations of one instant, sampled allocations with their stacks, and the
//! post-mortem file.
//!
//! Programs depend on [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All items of this crate
//! may change in any version: the crates of Plimsoll require each other in exactly one version.
//!
//! [`Alloc`](alloc::Alloc) wraps the program's allocator. The [`ledger`](plimsoll_ledger::ledger) counts each operation; the [`sampler`] chooses
//! some of them, whose stacks the table of [`stack`] adds up. [`label`] knows for whom.
//! [`postmortem_file`](plimsoll_ledger::postmortem_file) holds all of it where it outlives the process.

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

pub mod alloc;
pub mod deferred_signals;
pub mod escape;
pub mod fork;
pub mod histogram;
pub mod internal_heap;
pub mod internal_scope;
pub mod internal_thread;
pub mod interpreter;
pub mod label;
pub mod overhead;
pub mod sampler;
pub mod settings;
pub mod single_thread;
pub mod stack;
pub mod stats;
pub mod wakeup;
pub mod warning;

/// Whether waits are observed in code that does not know Plimsoll, if that was requested.
#[cfg(feature = "interpose")]
pub const INTERPOSES: bool = plimsoll_interpose::IN_FORCE;
/// Whether waits are observed in code that does not know Plimsoll, if that was requested: it was not.
#[cfg(not(feature = "interpose"))]
pub const INTERPOSES: bool = true;

const _: () =
    assert!(plimsoll_backend::backend::LARGEST_CLASS == plimsoll_ledger::size_class::LARGEST);
