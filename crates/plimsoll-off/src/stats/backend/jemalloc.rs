//! jemalloc, by the calls of the crate `tikv-jemallocator`.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;

use tikv_jemalloc_sys as ffi;

#[derive(Clone, Copy, Debug, Default)]
pub struct Jemalloc;

super::silent_backend!(Jemalloc, "jemalloc");

/// The alignment of every block of at least this size.
const MALLOC_ALIGNMENT: usize = if cfg!(target_pointer_width = "64") {
    16
} else {
    8
};

#[inline]
fn flags(align: usize, size: usize) -> c_int {
    if align <= MALLOC_ALIGNMENT && align <= size {
        0
    } else {
        ffi::MALLOCX_ALIGN(align)
    }
}

// SAFETY: jemalloc meets the contract; sizes are not zero, as `GlobalAlloc` requires, and
// alignments are requested where they are not implied.
unsafe impl GlobalAlloc for Jemalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: jemalloc accepts any nonzero size and these flags.
        unsafe {
            match flags(layout.align(), layout.size()) {
                0 => ffi::malloc(layout.size()).cast(),
                flags => ffi::mallocx(layout.size(), flags).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: jemalloc accepts any nonzero size and these flags.
        unsafe {
            match flags(layout.align(), layout.size()) {
                0 => ffi::calloc(1, layout.size()).cast(),
                flags => ffi::mallocx(layout.size(), flags | ffi::MALLOCX_ZERO).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let flags = flags(layout.align(), layout.size());
        // SAFETY: jemalloc made the block with this size and alignment, as
        // `GlobalAlloc::dealloc` requires.
        unsafe { ffi::sdallocx(block.cast(), layout.size(), flags) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: jemalloc made the block and the new size is not zero, as
        // `GlobalAlloc::realloc` requires.
        unsafe {
            match flags(layout.align(), new_size) {
                0 => ffi::realloc(block.cast(), new_size).cast(),
                flags => ffi::rallocx(block.cast(), new_size, flags).cast(),
            }
        }
    }
}
