//! Exact counts of known operations.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll_heap::{Heap, size_class};

/// Allocates and frees blocks of each class, in more rounds than lists have places, and compares the
/// counts of each class.
pub fn by_class() {
    let mut blocks = Vec::with_capacity(1000);
    for class in 1..size_class::CLASSES {
        let size = size_class::SIZES[class] as usize;
        let layout = Layout::from_size_align(size, 8).unwrap();
        let before = plimsoll_heap::stats();
        // SAFETY: the layout is valid, and each block is freed with it, once.
        unsafe {
            for _ in 0..1000 {
                let block = Heap.alloc(layout);
                block.write_bytes(class as u8, size);
                blocks.push(block);
            }
            let between = plimsoll_heap::stats();
            let counts = between.by_class[class];
            assert_eq!(counts.mallocs - before.by_class[class].mallocs, 1000);
            assert_eq!(counts.frees, before.by_class[class].frees);
            assert_eq!(between.heap_alloc - before.heap_alloc, 1000 * size as u64);
            for block in blocks.drain(..) {
                assert_eq!(
                    (block.read(), block.add(size - 1).read()),
                    (class as u8, class as u8)
                );
                Heap.dealloc(block, layout);
            }
        }
        let after = plimsoll_heap::stats();
        assert_eq!(after.frees - before.frees, 1000, "{size}");
        assert_eq!(after.heap_alloc, before.heap_alloc, "{size}");
    }
}

pub fn large() {
    let before = plimsoll_heap::stats();
    let mut block = Vec::<u8>::with_capacity(100_000);
    block.push(1);
    let between = plimsoll_heap::stats();
    assert_eq!(between.large.mallocs - before.large.mallocs, 1);
    assert_eq!(between.heap_alloc - before.heap_alloc, 100_000);
    block.reserve_exact(200_000);
    let grown = plimsoll_heap::stats();
    assert_eq!(grown.large.mallocs - before.large.mallocs, 2);
    assert_eq!(grown.large.frees - before.large.frees, 1);
    assert_eq!(grown.heap_alloc - before.heap_alloc, 200_001);
    block.shrink_to_fit();
    assert_eq!(block, [1]);
    drop(block);
    let after = plimsoll_heap::stats();
    assert_eq!(
        after.large.mallocs - before.large.mallocs,
        after.large.frees - before.large.frees
    );
    assert_eq!(after.heap_alloc, before.heap_alloc);
}
