//! The memory that the heap takes and returns.

use std::alloc::{GlobalAlloc, Layout};
use std::time::Duration;

use plimsoll_heap::Heap;

use crate::model::check;

pub fn serve_other_sizes() {
    let fill = |size: usize| {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let mut blocks = Vec::with_capacity((64 << 20) / size);
        // SAFETY: the layout is valid, and each block is freed with it, once.
        unsafe {
            (0..blocks.capacity()).for_each(|_| blocks.push(Heap.alloc(layout)));
            blocks
                .drain(..)
                .for_each(|block| Heap.dealloc(block, layout));
        }
    };
    fill(64);
    let first = plimsoll_heap::stats().heap_sys;
    for size in [80, 500, 3000, 20_000, 100_000, 5 << 20] {
        fill(size);
        let now = plimsoll_heap::stats();
        check(&now);
        assert!(
            now.heap_sys < 2 * first,
            "{size}: {} of {first}",
            now.heap_sys
        );
    }
}

/// Memory returns to the system seconds after its use, at frees of pages.
pub fn return_memory() {
    drop(vec![1_u8; 256 << 20]);
    loop {
        // Blocks of several pages, so that the page heap works.
        drop(Vec::<u8>::with_capacity(1 << 20));
        let stats = plimsoll_heap::stats();
        check(&stats);
        if stats.heap_idle - stats.heap_released < 16 << 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
