//! The test suite with jemalloc as the underlying allocator.

#[path = "../suite/mod.rs"]
mod suite;

/// Without a backend, the heap consists of its blocks.
#[test]
fn the_heap_is_its_blocks_without_a_backend() {
    plimsoll::free_os_memory();
    let stats = plimsoll::mem_stats();
    assert!(plimsoll::stats::backend().is_none());
    assert_eq!(stats.pages, plimsoll::stats::Pages::ABSENT);
    assert_eq!(stats.heap_sys, stats.heap_alloc);
    assert_eq!((stats.heap_idle, stats.heap_released), (0, 0));
}
