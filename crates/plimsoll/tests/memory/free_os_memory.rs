//! The system's allocator without figures still returns memory to the system.

use plimsoll_checks::pages;

#[test]
fn free_os_memory_gives_back() {
    let (before, after) = pages::free_os_memory_gives_back();
    for stats in [before, after] {
        assert_eq!(stats.pages, plimsoll::stats::Pages::ABSENT);
        assert_eq!(stats.heap_sys, stats.heap_alloc);
        assert_eq!(stats.heap_inuse, stats.heap_alloc);
        assert_eq!((stats.heap_released, stats.heap_slack), (0, 0));
    }
}
