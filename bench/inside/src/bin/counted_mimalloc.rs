//! The work over mimalloc, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<plimsoll::stats::backend::MiMalloc> = plimsoll::Alloc::mimalloc();

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
