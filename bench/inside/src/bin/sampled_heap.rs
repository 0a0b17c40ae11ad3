//! The work over `plimsoll-heap`, which counts, sampled by Plimsoll.

#[global_allocator]
static ALLOC: plimsoll::SamplingAlloc<plimsoll_heap::Heap> =
    plimsoll::SamplingAlloc::samples_only(plimsoll_heap::Heap);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
