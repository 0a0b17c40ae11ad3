//! Exact counts of what a thread allocates in a part of its code, for tests and benchmarks.
//!
//! [`measure()`] counts a closure, [`Measurement`] any section. [`assert_allocs!`](crate::assert_allocs)
//! and [`assert_no_alloc!`](crate::assert_no_alloc) check the number of allocations, and a
//! [`Budget`] also checks bytes. If a check fails, its message names the sites.
//!
//! [`TaskAccount`] counts what tracked tasks allocate on all threads.
//!
//! * The calling thread alone is counted, so tests may run beside each other in one process.
//! * Sizes are those that the code requested. A reallocation is a free and an allocation.
//! * Frees count wherever the block came from. Frees by other threads do not count here.
//! * Plimsoll's own allocations do not count.
//! * Measurements nest, in any order of their ends. Each counts all from its begin to its end.
//! * Blocks must come from an [`Alloc`](plimsoll_core::alloc::Alloc) or a [`SamplingAlloc`](plimsoll_core::alloc::SamplingAlloc).
//!   Blocks of C libraries, and memory that the program maps, do not.
//!
//! An allocation and its free take longer while their thread is measured. Threads that are not
//! measured run the same instructions as without this module.

pub use plimsoll_profiles::measure::{
    AllocationSite, Budget, Expected, Measured, Measurement, TaskAccount, accounts_by_label,
    assert_allocations, measure, measure_with_sites,
};
