//! The heap below Plimsoll, whose statistics are then the heap's.

use plimsoll::SamplingAlloc;
use plimsoll_heap::Heap;

#[global_allocator]
static ALLOC: SamplingAlloc<Heap> = SamplingAlloc::over_counts(Heap, &Heap);

mod counts;
mod pages;
mod postmortem;
mod soak;
