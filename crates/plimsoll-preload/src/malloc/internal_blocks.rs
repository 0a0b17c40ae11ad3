//! Plimsoll's own blocks, from its internal heap. They are not counted, and their addresses
//! identify them. A header before each block holds its length and its start.

use std::alloc::Layout;
use std::ptr::null_mut;

use super::cold::place_uncharged;
use super::{ALIGN, Make};
use plimsoll_core::alloc::thread::Thread;

#[repr(C)]
struct Header {
    start: *mut u8,
    size: usize,
}

pub(super) fn place(make: Make, size: usize) -> *mut u8 {
    let align = make.align();
    let header = size_of::<Header>().max(align);
    let Some(layout) = layout_of(size, header, align) else {
        return null_mut();
    };
    let start = plimsoll_core::internal_heap::alloc(layout, matches!(make, Make::Zeroed));
    if start.is_null() {
        return start;
    }
    // SAFETY: the header lies within the new allocation, before the block.
    unsafe {
        let block = start.add(header);
        block.cast::<Header>().sub(1).write(Header { start, size });
        block
    }
}

fn layout_of(size: usize, header: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(header)?, align).ok()
}

/// # Safety
/// `place` returned the block.
pub(super) unsafe fn size(block: *mut u8) -> usize {
    // SAFETY: `place` wrote the header before the block, by this function's contract.
    unsafe { (*block.cast::<Header>().sub(1)).size }
}

/// # Safety
/// As for [`size`].
pub(super) unsafe fn free(block: *mut u8) {
    // SAFETY: `place` wrote the header before the block, by this function's contract. The internal
    // heap ignores the alignment.
    unsafe {
        let Header { start, size } = block.cast::<Header>().sub(1).read();
        let header = block as usize - start as usize;
        if let Some(layout) = layout_of(size, header, ALIGN) {
            plimsoll_core::internal_heap::free(start, layout);
        }
    }
}

/// # Safety
/// As for [`size`].
pub(super) unsafe fn realloc(thread: Thread, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: `place` returned `block`, by this function's contract. Both blocks are at least as
    // long as the copied part, and distinct.
    unsafe {
        let mut moved = place(Make::Plain, size);
        if moved.is_null() {
            moved = place_uncharged(thread, Make::Plain, size).cast();
        }
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(block, self::size(block).min(size));
            free(block);
        }
        moved
    }
}
