//! The work over `plimsoll-heap`, which counts.

#[global_allocator]
static ALLOC: plimsoll_heap::Heap = plimsoll_heap::Heap;

fn main() {
    plimsoll_bench_inside::main();
    let stats = plimsoll_heap::stats();
    assert!(stats.frees <= stats.mallocs && stats.mallocs > 0);
}
