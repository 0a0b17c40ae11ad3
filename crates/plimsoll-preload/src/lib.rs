//! Plimsoll's doors in a library that is preloaded (`LD_PRELOAD`) into a program that knows nothing
//! of it: the C library's functions for memory are defined here, those for mappings, threads, locks
//! and futexes in `plimsoll_interpose`, and those by which a program ends in `ending`.
//!
//! Set off by the command `plimsoll run`, which says by the environment what is wanted: see
//! `start`.

mod ending;
mod execution;
mod memory;
mod next;
mod operators;
mod signals;
mod start;

/// What this library allocates for itself is in none of the program's figures.
#[global_allocator]
static HEAP: plimsoll::preload::OwnHeap = plimsoll::preload::OwnHeap;

// So that its functions are linked.
use plimsoll_interpose as _;
