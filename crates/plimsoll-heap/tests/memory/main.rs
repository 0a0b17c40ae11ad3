//! Plimsoll's own tests of statistics and profiles, over the heap. Those that expect Plimsoll's classes, in
//! steps of 8 bytes, are not among them.
//!
//! Not a part of `cargo test --workspace`: `cargo test -p plimsoll-heap --test memory`. Each module runs in
//! a separate process.

use plimsoll::SamplingAlloc;
use plimsoll_heap::Heap;

#[global_allocator]
static ALLOC: SamplingAlloc<Heap> = SamplingAlloc::over_counts(Heap, &Heap);

plimsoll_testkit::process_per_module!();

#[path = "../../../plimsoll/tests/memory/consistency.rs"]
mod consistency;
#[path = "../../../plimsoll/tests/memory/heap_profile.rs"]
mod heap_profile;
#[path = "../../../plimsoll/tests/memory/lifetimes.rs"]
mod lifetimes;
#[path = "../../../plimsoll/tests/suite/measure.rs"]
mod measure;
#[path = "../../../plimsoll/tests/memory/peak.rs"]
mod peak;
#[path = "../../../plimsoll/tests/memory/reconcile.rs"]
mod reconcile;
#[path = "../../../plimsoll/tests/memory/sampling.rs"]
mod sampling;
#[path = "../../../plimsoll/tests/memory/stacks.rs"]
mod stacks;
#[path = "../../../plimsoll/tests/memory/types.rs"]
mod types;
