//! A program whose C code uses the same jemalloc.

#![cfg(target_os = "linux")]

use plimsoll::stats::backend::Jemalloc;

#[global_allocator]
static ALLOC: plimsoll::Alloc<Jemalloc> = plimsoll::Alloc::jemalloc();

mod theirs {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        #[link_name = "_rjem_malloc"]
        pub fn malloc(size: usize) -> *mut c_void;
        #[link_name = "_rjem_calloc"]
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        #[link_name = "_rjem_realloc"]
        pub fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
        #[link_name = "_rjem_free"]
        pub fn free(block: *mut c_void);
        #[link_name = "_rjem_memalign"]
        pub fn memalign(alignment: usize, size: usize) -> *mut c_void;
        #[link_name = "_rjem_posix_memalign"]
        pub fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    }
}

mod shared_malloc;
