//! Pages of the same instant as the counts: Go's relations hold without a correction.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::stats::{Exactness, fragmentation};
use plimsoll::{MemStats, free_os_memory, mem_stats};
use plimsoll_testkit::child;

pub fn check(stats: &MemStats) {
    assert_eq!(stats.heap_slack, 0);
    for figure in [
        stats.pages.reserved,
        stats.pages.committed,
        stats.pages.active,
        stats.pages.metadata,
    ] {
        assert_eq!(figure.exactness, Exactness::Exact);
    }
    assert!(stats.heap_alloc <= stats.heap_inuse, "{stats:?}");
    assert_eq!(stats.heap_inuse + stats.heap_idle, stats.heap_sys);
    assert!(stats.heap_released <= stats.heap_idle);
    let by_size = stats.by_size.iter();
    let in_classes = by_size
        .map(|class| (class.mallocs - class.frees) * u64::from(class.size))
        .sum::<u64>();
    assert!(in_classes <= stats.heap_alloc);
}

/// Reads statistics beside threads whose spans, large blocks and sampled blocks come and go.
fn busy() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut size = 1000 + thread;
                while !stop.load(Ordering::Relaxed) {
                    size = size * 7919 % 60_000 + 1;
                    let blocks: Vec<Vec<u8>> = (0..20)
                        .map(|_| Vec::with_capacity(black_box(size)))
                        .collect();
                    drop(blocks);
                }
            });
        }
        let begun = mem_stats().mallocs;
        let mut readings = 0;
        loop {
            let stats = mem_stats();
            check(&stats);
            readings += 1;
            if readings >= 2000 && stats.mallocs > begun + 100_000 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn no_reading_needs_a_correction() {
    child::run("no_reading_needs_a_correction", "heap_rate=4k", busy);
}

#[test]
fn no_reading_needs_a_correction_if_all_are_sampled() {
    child::run(
        "no_reading_needs_a_correction_if_all_are_sampled",
        "heap_rate=1",
        busy,
    );
}

#[test]
fn free_memory_is_released() {
    child::run("free_memory_is_released", "", || {
        const MIB: u64 = 1 << 20;
        let blocks: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        drop(blocks);
        free_os_memory();
        let stats = mem_stats();
        check(&stats);
        assert!(stats.heap_released >= 60 * MIB, "{stats:?}");
        assert_eq!(stats.heap_idle, stats.heap_released);
    });
}

#[test]
fn classes_have_the_pages_and_the_blocks_of_the_statistics() {
    child::run(
        "classes_have_the_pages_and_the_blocks_of_the_statistics",
        "heap_rate=0",
        || {
            let kept: Vec<Vec<u8>> = (0..1000).map(|_| Vec::with_capacity(1000)).collect();
            let classes = fragmentation()
                .expect("the heap reports its classes")
                .classes;
            let stats = mem_stats();
            let of = |size: usize| {
                let mut found = classes.iter().filter(|class| class.largest == size);
                found.next().expect("the class has pages")
            };
            let of_size = of(1024);
            assert!(of_size.in_use >= 1000 && of_size.room >= of_size.in_use);
            assert_eq!(of_size.live.map(|live| live.blocks), Some(of_size.in_use));
            let active: u64 = classes.iter().map(|class| class.active).sum();
            assert!(active <= stats.heap_inuse, "{active} of {stats:?}");
            black_box(kept);
        },
    );
}
