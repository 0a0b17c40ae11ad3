//! Exact counts, whichever of the blocks are sampled and so lie outside the heap.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll::heap_stats;
use plimsoll_testkit::child;
use plimsoll_testkit::counts::added;

use crate::ALLOC;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// Requests of each kind, with the size at which they count, which one of Go's classes has.
const REQUESTS: [(usize, usize, u64); 8] = [
    (1, 1, 8),
    (100, 8, 112),
    (993, 16, 1024),
    (100, 64, 128),
    (6900, 8, 6912),
    (31_011, 4096, 32_768),
    (32_769, 8, 32_769),
    (1_000_001, 8, 1_000_001),
];

fn every_operation() {
    for (size, align, counted) in REQUESTS {
        let layout = layout(size, align);
        let of_class = added(counted as usize, || {
            for round in 0..1000 {
                // SAFETY: a valid layout; the block is freed below with the same layout.
                unsafe {
                    let block = match round % 2 {
                        0 => ALLOC.alloc(layout),
                        _ => ALLOC.alloc_zeroed(layout),
                    };
                    assert!(!block.is_null() && block.addr() % align == 0);
                    block.write_bytes(1, size);
                    ALLOC.dealloc(block, layout);
                }
            }
        });
        assert_eq!(
            of_class,
            [1000, 1000, 1000 * counted, 1000 * counted],
            "{size}"
        );
    }
    let (small, larger) = (layout(100, 8), layout(5000, 8));
    let of_small = added(112, || {
        let of_larger = added(5376, || {
            for _ in 0..1000 {
                // SAFETY: valid layouts; each block is used with its own.
                unsafe {
                    let block = ALLOC.alloc(small);
                    block.write_bytes(7, 100);
                    let block = ALLOC.realloc(block, small, 5000);
                    assert_eq!((block.read(), block.add(99).read()), (7, 7));
                    let block = ALLOC.realloc(block, larger, 100);
                    assert_eq!((block.read(), block.add(99).read()), (7, 7));
                    ALLOC.dealloc(block, small);
                }
            }
        });
        assert_eq!(of_larger[..2], [1000, 1000]);
    });
    assert_eq!(of_small[..2], [2000, 2000]);
    let stats = heap_stats();
    let by_class = stats.by_class.iter().map(|class| class.mallocs);
    assert_eq!(by_class.sum::<u64>() + stats.large.mallocs, stats.mallocs);
}

#[test]
fn every_operation_is_counted_if_none_is_sampled() {
    child::run(
        "every_operation_is_counted_if_none_is_sampled",
        "heap_rate=0",
        every_operation,
    );
}

#[test]
fn every_operation_is_counted_if_some_are_sampled() {
    child::run(
        "every_operation_is_counted_if_some_are_sampled",
        "heap_rate=1k",
        every_operation,
    );
}

#[test]
fn every_operation_is_counted_if_all_are_sampled() {
    child::run(
        "every_operation_is_counted_if_all_are_sampled",
        "heap_rate=1",
        every_operation,
    );
}
