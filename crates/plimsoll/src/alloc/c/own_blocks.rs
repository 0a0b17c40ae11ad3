//! Blocks of Plimsoll's own, from its own heap: in no count, and told by their addresses. Before
//! each stands how long it is, and where it begins.

use std::alloc::Layout;
use std::ptr::null_mut;

use super::slow::place_uncharged;
use super::{ALIGN, Make};
use crate::alloc::thread::Thread;

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
    let start = crate::own::alloc(layout, matches!(make, Make::Zeroed));
    if start.is_null() {
        return start;
    }
    // SAFETY: the header lies within what was just allocated, before the block.
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
/// The block is one of [`place`]'s.
pub(super) unsafe fn size(block: *mut u8) -> usize {
    // SAFETY: the caller's.
    unsafe { (*block.cast::<Header>().sub(1)).size }
}

/// # Safety
/// As for [`size`].
pub(super) unsafe fn free(block: *mut u8) {
    // SAFETY: the caller's; the alignment makes no difference to the heap.
    unsafe {
        let Header { start, size } = block.cast::<Header>().sub(1).read();
        let header = block as usize - start as usize;
        if let Some(layout) = layout_of(size, header, ALIGN) {
            crate::own::free(start, layout);
        }
    }
}

/// # Safety
/// As for [`size`].
pub(super) unsafe fn realloc(thread: Thread, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's; both blocks are at least as long as what is copied, and distinct.
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
