//! Blocks of all alignments, and zeroed blocks.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll_heap::Heap;

#[test]
fn aligned_blocks_are_aligned_and_apart() {
    let mut blocks = Vec::new();
    for shift in 0..=21 {
        for size in [1_usize, 24, 40, 100, 1000, 5000, 40_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            // SAFETY: the layout is valid.
            let block = unsafe { Heap.alloc(layout) };
            assert!(
                !block.is_null() && block.addr() % layout.align() == 0,
                "{layout:?}"
            );
            // SAFETY: the block has the layout's size.
            unsafe { block.write_bytes(shift as u8, size) };
            blocks.push((block, layout, shift as u8));
        }
    }
    for (block, layout, value) in blocks {
        // SAFETY: the block was allocated with the layout, and is freed once.
        unsafe {
            let bytes = std::slice::from_raw_parts(block, layout.size());
            assert!(bytes.iter().all(|&byte| byte == value), "{layout:?}");
            Heap.dealloc(block, layout);
        }
    }
}

#[test]
fn zeroed_blocks_are_zero_after_other_use() {
    for size in [8, 100, 1024, 20_000, 33_000, 1 << 20] {
        for _ in 0..3 {
            let mut bytes = vec![0_u8; size];
            assert!(bytes.iter().all(|&byte| byte == 0), "{size}");
            bytes.fill(0xff);
        }
    }
}
