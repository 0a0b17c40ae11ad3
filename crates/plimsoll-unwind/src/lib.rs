//! Walks stacks for hooks and signal handlers: by call-frame information, by frame pointers, and by
//! heuristics for frames without either. A walk neither allocates nor locks.
//!
//! [`modules::ModuleList`] lists the loaded code with its unwind tables; it is made in advance.
//! [`unwind_tables::walk`] walks by these tables. [`walk_cache`] answers repeated walks.
//!
//! A stack is a list of return addresses, leaf first.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

// The system's unwinder notes no words of a chain.
#![cfg_attr(windows, allow(dead_code))]

mod arch;
pub mod cache_counts;
pub mod frame_detection;
mod frame_heuristics;
pub mod modules;
mod os;
pub mod registers;
mod rules;
pub mod unwind_tables;
pub mod walk;
pub mod walk_cache;

pub use os::frame_pointers;
