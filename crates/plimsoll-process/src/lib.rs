//! What the system says about the process, for Plimsoll: its mappings and their residence, its threads' files, processors,
//! control group and loaded objects.
//!
//! Unless its documentation states otherwise, every function here may be called inside an allocator hook. Such a
//! function does not allocate, take a lock, or change `errno`.
//!
//! `portable` serves every system but Linux: where a system lacks something, its functions return nothing, zero or an
//! error.
//!
//! Programs use [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All items of this crate may
//! change in any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod control_group;
pub mod deep_stacks;
pub mod loader;
mod os;
mod own_memory;
pub mod stack_memory;

pub use os::*;
pub use own_memory::*;
