//! mimalloc, by the calls of the crate `mimalloc`.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as ffi;

#[derive(Clone, Copy, Debug, Default)]
pub struct MiMalloc;

super::silent_backend!(MiMalloc, "mimalloc");

// SAFETY: mimalloc meets the contract; every alignment is requested.
unsafe impl GlobalAlloc for MiMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: mimalloc accepts any size and any power of two.
        unsafe { ffi::mi_malloc_aligned(layout.size(), layout.align()).cast() }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: mimalloc accepts any size and any power of two.
        unsafe { ffi::mi_zalloc_aligned(layout.size(), layout.align()).cast() }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: mimalloc made the block, as `GlobalAlloc::dealloc` requires.
        unsafe { ffi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: mimalloc made the block, as `GlobalAlloc::realloc` requires.
        unsafe { ffi::mi_realloc_aligned(block.cast(), new_size, layout.align()).cast() }
    }
}
