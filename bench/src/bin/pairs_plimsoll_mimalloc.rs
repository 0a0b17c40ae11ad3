//! Pairs over mimalloc, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<mimalloc::MiMalloc> = plimsoll::Alloc::new(mimalloc::MiMalloc);

fn main() {
    let _plimsoll = plimsoll::start();
    let pairs = plimsoll_bench::pairs::main();
    assert!(
        plimsoll::heap_stats().mallocs >= pairs as u64,
        "pairs are not counted"
    );
}
