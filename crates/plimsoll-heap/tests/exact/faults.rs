//! Memory that the system refuses.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll_heap::Heap;

/// Allocates until the address space is used up: null pointers, no abort, and all counts are right.
pub fn exhaust() {
    let limit = libc::rlimit {
        rlim_cur: 6 << 30,
        rlim_max: 6 << 30,
    };
    // SAFETY: the limit is valid.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(failed, 0);
    let before = plimsoll_heap::stats();
    for size in [64 << 20, 1 << 20, 20_000] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let mut last = std::ptr::null_mut::<*mut u8>();
        let mut count = 0_u64;
        // SAFETY: the layout is valid; each block holds the address of the one before, and all
        // are freed once.
        unsafe {
            while count < 100_000 {
                let block = Heap.alloc(layout).cast::<*mut u8>();
                if block.is_null() {
                    break;
                }
                block.write(last.cast());
                last = block;
                count += 1;
            }
            let during = plimsoll_heap::stats();
            assert_eq!(
                during.mallocs - before.mallocs - (during.frees - before.frees),
                count
            );
            while !last.is_null() {
                let next = last.read().cast();
                Heap.dealloc(last.cast(), layout);
                last = next;
            }
        }
    }
    assert_eq!(plimsoll_heap::stats().heap_alloc, before.heap_alloc);
}
