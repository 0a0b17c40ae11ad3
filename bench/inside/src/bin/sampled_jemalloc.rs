//! The work over jemalloc, sampled and not counted.

#[global_allocator]
static ALLOC: plimsoll::SamplingAlloc<plimsoll::stats::backend::Jemalloc> =
    plimsoll::SamplingAlloc::samples_only(plimsoll::stats::backend::Jemalloc);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
