//! The work over `plimsoll-heap`, which counts, sampled by Plimsoll.

#[global_allocator]
static ALLOC: plimsoll::SamplingAlloc<plimsoll_heap::Heap> =
    plimsoll::SamplingAlloc::over_counts(plimsoll_heap::Heap, &plimsoll_heap::Heap);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
