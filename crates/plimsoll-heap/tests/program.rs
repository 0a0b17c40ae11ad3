//! The heap as the allocator of this program, of the test harness, too.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;

use plimsoll_heap::{Heap, HeapStats, size_class};

#[global_allocator]
static HEAP: Heap = Heap;

/// Panics if figures of one instant contradict each other.
fn check(stats: &HeapStats) {
    for class in stats.by_class {
        assert!(class.frees <= class.mallocs, "{class:?}");
    }
    assert!(stats.large.frees <= stats.large.mallocs, "{:?}", stats.large);
    assert!(stats.heap_alloc <= stats.heap_inuse, "{} in {}", stats.heap_alloc, stats.heap_inuse);
    assert_eq!(stats.heap_inuse + stats.heap_idle, stats.heap_sys);
    assert!(stats.heap_released <= stats.heap_idle);
}

#[test]
fn collections_work_on_several_threads() {
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            scope.spawn(move || {
                let mut map = BTreeMap::new();
                let mut names = HashMap::new();
                for number in 0..20_000_u64 {
                    map.insert(number * 7919 % 20_011, vec![number; (number % 50) as usize]);
                    names.insert(format!("{thread}:{number}"), number);
                    if number % 3 == 0 {
                        map.remove(&(number * 31 % 20_011));
                    }
                }
                assert!(map.values().all(|values| values.windows(2).all(|two| two[0] == two[1])));
                assert_eq!(names.len(), 20_000);
                check(&plimsoll_heap::stats());
            });
        }
    });
}
