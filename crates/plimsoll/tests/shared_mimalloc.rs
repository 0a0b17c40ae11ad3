//! A program whose C code uses the same mimalloc.

#![cfg(target_os = "linux")]

use plimsoll::stats::backend::MiMalloc;

#[global_allocator]
static ALLOC: plimsoll::Alloc<MiMalloc> = plimsoll::Alloc::mimalloc();

mod theirs {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        #[link_name = "mi_malloc"]
        pub fn malloc(size: usize) -> *mut c_void;
        #[link_name = "mi_calloc"]
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        #[link_name = "mi_realloc"]
        pub fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
        #[link_name = "mi_free"]
        pub fn free(block: *mut c_void);
        #[link_name = "mi_memalign"]
        pub fn memalign(alignment: usize, size: usize) -> *mut c_void;
        #[link_name = "mi_posix_memalign"]
        pub fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    }
}

mod shared_malloc;
