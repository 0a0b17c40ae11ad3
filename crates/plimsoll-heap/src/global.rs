//! [`Heap`], the heap as a program's allocator: the fast paths.

use std::alloc::{GlobalAlloc, Layout};

use crate::heap;
use crate::lists::{arch, areas, slots};
use crate::size_class::{self, LARGEST_STEP, PAGE};

/// The heap of the process. All values are the same heap.
///
/// A block of up to 32 KiB comes from a free list of the current processor, or of the thread where
/// the system has no restartable sequences. Larger ones are runs of pages.
///
/// A null pointer means that the system refused memory; nothing is counted then. A free of memory that is
/// not a block of the heap aborts the process when it is recognised, with a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Returns where a slot has the list for a layout, if the fast path finds it: for up to
/// [`LARGEST_STEP`] bytes, aligned to 16 at most. Such sizes in multiples of 16 are in classes that are.
#[inline(always)]
fn common_offset(layout: Layout) -> Option<usize> {
    let size = if layout.align() > 8 {
        (layout.size() + 15) & !15
    } else {
        layout.size()
    };
    (size <= LARGEST_STEP && layout.align() <= 16).then(|| slots::offset_by_step(size))
}

// SAFETY: the lists, spans and runs hand out a block at most once until it is freed, and its class is as
// large and as aligned as the layout demands.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(offset) = common_offset(layout) else {
            return alloc_uncommon(layout, false);
        };
        // SAFETY: the area is the thread's, and the offset leads to a list.
        let block = unsafe { arch::pop(areas::area(), offset) };
        if block.is_null() {
            return heap::alloc_cold(offset);
        }
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if common_offset(layout).is_none() {
            return alloc_uncommon(layout, true);
        }
        // SAFETY: by this function's contract; the block has the layout's size.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(offset) = common_offset(layout) else {
            return dealloc_uncommon(block, layout);
        };
        // SAFETY: the area is the thread's, and the offset leads to the list of the block's class.
        if !unsafe { arch::push(areas::area(), offset, block) } {
            heap::dealloc_cold(block, offset);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `GlobalAlloc` has callers round `new_size` up to the alignment without overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if is_in_place(block, layout, new_layout) {
            return block;
        }
        // SAFETY: the new block is as large as the smaller of both sizes, and no other one overlaps it.
        unsafe {
            let moved = self.alloc(new_layout);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

/// Gives a block its new size where it is, if that is possible. A small block that stays in its class is
/// not counted.
fn is_in_place(block: *mut u8, layout: Layout, new_layout: Layout) -> bool {
    let class = |layout: Layout| size_class::of_aligned(layout.size(), layout.align());
    match (class(layout), class(new_layout)) {
        (Some(old), Some(new)) => old == new,
        (None, None) => heap::resize_large(block, layout.size(), new_layout.size()),
        _ => false,
    }
}

/// Allocates a block of an uncommon layout: larger than [`LARGEST_STEP`], or aligned to more than 16 bytes.
#[inline(never)]
fn alloc_uncommon(layout: Layout, zeroed: bool) -> *mut u8 {
    let (block, is_zero) = match size_class::of_aligned(layout.size(), layout.align()) {
        Some(class) => {
            let offset = slots::offset_of(class);
            // SAFETY: the area is the thread's, and the offset leads to a list.
            let block = unsafe { arch::pop(areas::area(), offset) };
            let block = if block.is_null() {
                heap::alloc_cold(offset)
            } else {
                block
            };
            (block, false)
        }
        None => heap::alloc_large(layout.size(), layout.align().max(PAGE)),
    };
    if zeroed && !is_zero && !block.is_null() {
        // SAFETY: the block has the layout's size.
        unsafe { block.write_bytes(0, layout.size()) };
    }
    block
}

#[inline(never)]
fn dealloc_uncommon(block: *mut u8, layout: Layout) {
    match size_class::of_aligned(layout.size(), layout.align()) {
        Some(class) => {
            let offset = slots::offset_of(class);
            // SAFETY: the area is the thread's, and the offset leads to the list of the block's class.
            if !unsafe { arch::push(areas::area(), offset, block) } {
                heap::dealloc_cold(block, offset);
            }
        }
        None => heap::dealloc_large(block, layout.size()),
    }
}
