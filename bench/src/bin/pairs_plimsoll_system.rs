//! Pairs over the system's allocator, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<std::alloc::System> = plimsoll::Alloc::new(std::alloc::System);

fn main() {
    let _plimsoll = plimsoll::start();
    let pairs = plimsoll_bench::pairs::main();
    assert!(
        plimsoll::heap_stats().mallocs >= pairs as u64,
        "pairs are not counted"
    );
}
