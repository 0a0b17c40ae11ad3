//! The work over mimalloc, sampled and not counted.

#[global_allocator]
static ALLOC: plimsoll::SamplingAlloc<plimsoll::stats::backend::MiMalloc> =
    plimsoll::SamplingAlloc::samples_only(plimsoll::stats::backend::MiMalloc);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
