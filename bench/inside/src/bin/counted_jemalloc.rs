//! The work over jemalloc, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<plimsoll::stats::backend::Jemalloc> = plimsoll::Alloc::jemalloc();

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
