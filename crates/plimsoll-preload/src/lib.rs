//! The library that the command `plimsoll run` preloads (`LD_PRELOAD`) into an unmodified program.
//!
//! It interposes the C library's functions for memory and for the end of a process;
//! `plimsoll-interpose` interposes those for mappings, threads, locks and futexes. The command
//! configures it through the environment: see `start`.
//!
//! The build of the command compiles this crate, with the feature `library`, as a shared library.
//! Without that feature, the crate is empty.

#![cfg(feature = "library")]

mod arch;
mod confinement;
mod data_segment;
mod ending;
mod execution;
mod memory;
mod next;
mod operators;
mod relocation;
mod signals;
mod start;
mod unloading;

/// The heap of this library, whose allocations count in none of the program's figures.
#[global_allocator]
static HEAP: plimsoll::preload::OwnHeap = plimsoll::preload::OwnHeap;

// Links the functions of that crate.
use plimsoll_interpose as _;
