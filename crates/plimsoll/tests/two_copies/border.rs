//! The functions by which a copy of Plimsoll's allocator is used from the other side. Included by
//! both sides: each gets those of its own global allocator.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};

use plimsoll::{heap_stats, size_class};

/// Allocations and frees of a size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub mallocs: u64,
    pub frees: u64,
}

/// One copy. A block is resized and freed by the copy that made it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Border {
    /// Makes a block of a size and an alignment.
    pub make: extern "C" fn(usize, usize) -> *mut u8,
    /// The same, filled with zeros.
    pub make_zeroed: extern "C" fn(usize, usize) -> *mut u8,
    /// Resizes a block of a size and an alignment; the last is the new size.
    pub resize: unsafe extern "C" fn(*mut u8, usize, usize, usize) -> *mut u8,
    /// Frees a block of a size and an alignment.
    pub free: unsafe extern "C" fn(*mut u8, usize, usize),
    /// What the copy counted in the size class of that size.
    pub counts: extern "C" fn(usize) -> Counts,
}

/// The copy of the object that includes this.
pub const fn border() -> Border {
    Border {
        make,
        make_zeroed,
        resize,
        free,
        counts,
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

extern "C" fn make(size: usize, align: usize) -> *mut u8 {
    // SAFETY: the size is not zero in this test.
    unsafe { alloc(layout(size, align)) }
}

extern "C" fn make_zeroed(size: usize, align: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { alloc_zeroed(layout(size, align)) }
}

unsafe extern "C" fn resize(block: *mut u8, size: usize, align: usize, new_size: usize) -> *mut u8 {
    // SAFETY: the test resizes each block by its own copy, with the layout it has.
    unsafe { realloc(block, layout(size, align), new_size) }
}

unsafe extern "C" fn free(block: *mut u8, size: usize, align: usize) {
    // SAFETY: as for `resize`.
    unsafe { dealloc(block, layout(size, align)) }
}

extern "C" fn counts(size: usize) -> Counts {
    let class = size_class::of(size).expect("a size with a class");
    let counted = heap_stats().by_class[class];
    Counts {
        mallocs: counted.mallocs,
        frees: counted.frees,
    }
}
