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
mod malloc;
mod memory;
mod next;
mod operators;
mod own_heap;
mod relocation;
mod reporting;
mod signals;
mod start;
mod unloading;

// Links the functions of that crate.
use plimsoll_interpose as _;
