//! Tests that hold for every allocator. Each test binary that includes this file sets its own.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

use plimsoll::{heap_stats, mem_stats, size_class};
use plimsoll_checks::counts::added;

use crate::ALLOC;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn every_allocation_and_free_is_counted_once() {
    for (size, align) in [
        (993, 1),
        (1009, 8),
        (6_900, 16),
        (20_011, 64),
        (31_011, 4096),
    ] {
        let rounded = size_class::counted_size(size) as u64;
        let counted = added(size, || {
            for round in 0..1000 {
                // SAFETY: a valid layout; the block is freed below with the same layout.
                unsafe {
                    let block = if round % 2 == 0 {
                        ALLOC.alloc(layout(size, align))
                    } else {
                        let block = ALLOC.alloc_zeroed(layout(size, align));
                        assert!(
                            std::slice::from_raw_parts(block, size)
                                .iter()
                                .all(|&byte| byte == 0)
                        );
                        block
                    };
                    assert!(!block.is_null());
                    assert_eq!(block as usize % align, 0);
                    block.write_bytes(0xab, size);
                    if round >= 400 {
                        ALLOC.dealloc(block, layout(size, align));
                    }
                }
            }
        });
        assert_eq!(
            counted,
            [1000, 600, 1000 * rounded, 600 * rounded],
            "{size} bytes"
        );
    }
}

#[test]
fn large_blocks_count_as_requested() {
    const SIZES: [usize; 4] = [32_769, 100_003, 1 << 20, (4 << 20) + 1];
    // All blocks this large share one counter. Other code rarely allocates any; if it does, the
    // test measures again.
    let bytes: u64 = SIZES.iter().map(|&size| size as u64).sum();
    let work = || {
        for size in SIZES {
            // SAFETY: a valid layout; the block is freed with the same layout.
            unsafe {
                let block = ALLOC.alloc(layout(size, 8));
                black_box(block).write_bytes(1, size);
                ALLOC.dealloc(block, layout(size, 8));
            }
        }
        // Each `realloc`, also across the limit between small and large, counts as a free and an
        // allocation. Each small size is in a class that no other test uses.
        //
        // SAFETY: valid layouts; each block is used with its own.
        unsafe {
            let block = ALLOC.alloc(layout(27_000, 8));
            let block = ALLOC.realloc(block, layout(27_000, 8), 50_000);
            let block = ALLOC.realloc(block, layout(50_000, 8), 60_000);
            let block = ALLOC.realloc(block, layout(60_000, 8), 27_000);
            ALLOC.dealloc(block, layout(27_000, 8));
        }
    };
    let expected = [4 + 2, 4 + 2, bytes + 110_000, bytes + 110_000];
    let counted: Vec<_> = (0..20)
        .map(|_| added(40_000, work))
        .take_while(|counted| *counted != expected)
        .collect();
    assert!(counted.len() < 20, "{counted:?}");
}

#[test]
fn a_reallocation_counts_as_free_and_allocation_and_keeps_the_contents() {
    let (small, medium) = (937, 5_301);
    let from_small = added(small, || {
        let from_medium = added(medium, || {
            for _ in 0..500 {
                // SAFETY: valid layouts; each block is used with its own.
                unsafe {
                    let block = ALLOC.alloc(layout(small, 8));
                    for at in 0..small {
                        block.add(at).write(at as u8);
                    }
                    let block = ALLOC.realloc(block, layout(small, 8), medium);
                    assert!((0..small).all(|at| block.add(at).read() == at as u8));
                    let block = ALLOC.realloc(block, layout(medium, 8), small);
                    assert!((0..small).all(|at| block.add(at).read() == at as u8));
                    ALLOC.dealloc(block, layout(small, 8));
                }
            }
        });
        assert_eq!(from_medium[..2], [500, 500]);
    });
    assert_eq!(from_small[..2], [1000, 1000]);
}

#[test]
fn counts_survive_their_threads_and_frees_elsewhere() {
    let size = 961;
    let counted = added(size, || {
        for _ in 0..50 {
            let blocks = std::thread::spawn(move || {
                let blocks = (0..20).map(|_| vec![0u8; size].into_boxed_slice());
                blocks.collect::<Vec<_>>()
            });
            drop(blocks.join().unwrap());
        }
    });
    assert_eq!(counted[..2], [1000, 1000]);
}

#[test]
fn statistics_add_up_at_any_moment() {
    let keep: Vec<Vec<u8>> = (0..2000)
        .map(|size| Vec::with_capacity(size * 37 % 600 + 1))
        .collect();
    for _ in 0..100 {
        let stats = heap_stats();
        assert!(stats.exact);
        let (mut mallocs, mut frees) = (stats.large.mallocs, stats.large.frees);
        for class in &stats.by_class {
            assert!(
                class.frees <= class.mallocs,
                "class of {} bytes",
                class.size
            );
            mallocs += class.mallocs;
            frees += class.frees;
        }
        assert_eq!((mallocs, frees), (stats.mallocs, stats.frees));
        let stats = mem_stats();
        let parts = stats.heap_sys + stats.stack_sys + stats.mspan_sys + stats.mcache_sys;
        assert_eq!(
            stats.sys,
            parts + stats.buck_hash_sys + stats.gc_sys + stats.other_sys
        );
        assert_eq!(stats.heap_idle + stats.heap_inuse, stats.heap_sys);
        assert_eq!(stats.heap_objects, stats.mallocs - stats.frees);
        assert!(stats.mcache_inuse > 0 && stats.mcache_inuse <= stats.mcache_sys);
        assert!(stats.buck_hash_sys > 0);
    }
    drop(keep);
}

/// Go's `AllocsPerRun`: differences of counts are exact for each operation.
#[test]
fn allocations_per_run_are_exact() {
    for size in [977, 6_007, 24_001] {
        let mut runs = 0;
        let counted = added(size, || {
            for _ in 0..1000 {
                runs += 1;
                drop(black_box(Vec::<u8>::with_capacity(size)));
            }
        });
        assert_eq!(counted[..2], [runs, runs]);
    }
}
