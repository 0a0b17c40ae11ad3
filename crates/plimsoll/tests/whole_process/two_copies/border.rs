//! The functions through which the other side uses a copy of Plimsoll's allocator. Both sides
//! include this file, and each gets the functions of its global allocator.

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
    /// Allocates a block of a size and an alignment.
    pub make: extern "C" fn(usize, usize) -> *mut u8,
    /// The same, filled with zeros.
    pub make_zeroed: extern "C" fn(usize, usize) -> *mut u8,
    /// Resizes a block of a size and an alignment to the last argument.
    pub resize: unsafe extern "C" fn(*mut u8, usize, usize, usize) -> *mut u8,
    /// Frees a block of a size and an alignment.
    pub free: unsafe extern "C" fn(*mut u8, usize, usize),
    /// Returns the counts of the copy for the size class of a size.
    pub counts: extern "C" fn(usize) -> Counts,
}

/// Returns the functions of the copy in the object that includes this file.
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
    // SAFETY: the size is not zero in this test.
    unsafe { alloc_zeroed(layout(size, align)) }
}

unsafe extern "C" fn resize(block: *mut u8, size: usize, align: usize, new_size: usize) -> *mut u8 {
    // SAFETY: the test resizes each block through its copy, with its layout.
    unsafe { realloc(block, layout(size, align), new_size) }
}

unsafe extern "C" fn free(block: *mut u8, size: usize, align: usize) {
    // SAFETY: the test frees each block through its copy, with its layout.
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
