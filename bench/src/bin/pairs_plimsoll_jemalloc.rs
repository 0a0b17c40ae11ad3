//! Pairs over jemalloc, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<tikv_jemallocator::Jemalloc> =
    plimsoll::Alloc::new(tikv_jemallocator::Jemalloc);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench::pairs::main();
}
