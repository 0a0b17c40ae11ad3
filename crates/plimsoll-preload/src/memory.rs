//! C's functions for memory.

use std::ffi::{c_int, c_void};

use plimsoll::preload;

/// # Safety
/// As C's function of that name, as for all of these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's, as for all of these.
    unsafe { preload::malloc(size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's.
    unsafe { preload::free(block) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { preload::calloc(count, each) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { preload::realloc(block, size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    each: usize,
) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { preload::reallocarray(block, count, each) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { preload::memalign(align, size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { preload::memalign(align, size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { preload::posix_memalign(to, align, size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { preload::memalign(page(), size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(page()) {
        // SAFETY: the caller's.
        Some(size) => unsafe { preload::memalign(page(), size) },
        // SAFETY: more than there can be, which is refused.
        None => unsafe { preload::malloc(usize::MAX) },
    }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's.
    unsafe { preload::usable_size(block) }
}

fn page() -> usize {
    // SAFETY: no arguments that could be wrong.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
