//! The heap of this library, whose allocations count in none of the program's figures.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll_core::internal_heap;

use crate::malloc;

/// The allocator of the library itself: its blocks count as Plimsoll's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnHeap;

// SAFETY: blocks come from one of two heaps that fulfil the contract, and return to the heap that
// contains their address.
unsafe impl GlobalAlloc for OwnHeap {
    // Not inlined into each caller: forked children execute many of them, and each 64 KiB of code is a page fault.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = internal_heap::alloc(layout, false);
        if block.is_null() {
            // SAFETY: `layout` has a size above zero, as `GlobalAlloc::alloc` requires.
            return unsafe { malloc::allocate_uncounted(layout) };
        }
        block
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` is live and has this layout, as `GlobalAlloc::dealloc` requires; its
        // address shows which allocator made it.
        unsafe {
            if internal_heap::contains(block as usize) {
                internal_heap::free(block, layout);
            } else {
                malloc::free_uncounted(block);
            }
        }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `block` is live and has this layout, and `new_size` is valid for its alignment, as
        // `GlobalAlloc::realloc` requires. A new block has room for what is copied.
        unsafe {
            if internal_heap::contains(block as usize) {
                let resized = internal_heap::realloc(block, layout, new_size);
                if !resized.is_null() {
                    return resized;
                }
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[global_allocator]
static HEAP: OwnHeap = OwnHeap;
