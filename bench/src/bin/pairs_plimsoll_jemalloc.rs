//! Pairs over jemalloc, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<tikv_jemallocator::Jemalloc> =
    plimsoll::Alloc::new(tikv_jemallocator::Jemalloc);

fn main() {
    let _plimsoll = plimsoll::start();
    let pairs = plimsoll_bench::pairs::main();
    assert!(
        plimsoll::heap_stats().mallocs >= pairs as u64,
        "pairs are not counted"
    );
}
