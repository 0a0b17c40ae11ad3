//! Interposed memory functions of C.

use std::ffi::{c_int, c_void};

use crate::malloc;
use crate::next::Next;

/// # Safety
/// The requirements of C's `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: this entry point has the contract of C's `malloc`, which `malloc::malloc` shares.
    // The same holds for each function below and its namesake in C.
    unsafe { malloc::malloc(size) }
}

/// # Safety
/// The requirements of C's `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: as C's `free` requires, `block` is null or a live block.
    unsafe { malloc::free(block) }
}

/// # Safety
/// The requirements of C's `calloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    // SAFETY: C's `calloc` has no condition on its arguments.
    unsafe { malloc::calloc(count, each) }
}

/// # Safety
/// The requirements of C's `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as C's `realloc` requires, `block` is null or a live block.
    unsafe { malloc::realloc(block, size) }
}

/// # Safety
/// The requirements of C's `reallocarray`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    each: usize,
) -> *mut c_void {
    static NEXT: Next = Next::new("reallocarray\0");
    type This = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
    // SAFETY: as C's `reallocarray` requires, `block` is null or a live block. The next function of
    // that name has this type.
    unsafe {
        // The block is of an allocator in the program, whose `realloc` the C library calls.
        if malloc::has_allocator()
            && let Some(next) = NEXT.get()
        {
            return std::mem::transmute::<*mut c_void, This>(next)(block, count, each);
        }
        malloc::reallocarray(block, count, each)
    }
}

/// # Safety
/// The requirements of C's `memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: `malloc::memalign` checks the alignment.
    unsafe { malloc::memalign(align, size) }
}

/// # Safety
/// The requirements of C's `aligned_alloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: `malloc::memalign` checks the alignment.
    unsafe { malloc::memalign(align, size) }
}

/// # Safety
/// The requirements of C's `posix_memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: as C's `posix_memalign` requires, `to` is valid for a write. The callee checks the
    // alignment.
    unsafe { malloc::posix_memalign(to, align, size) }
}

/// # Safety
/// The requirements of C's `valloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: the size of a page is a valid alignment.
    unsafe { malloc::memalign(page(), size) }
}

/// # Safety
/// The requirements of C's `pvalloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(page()) {
        // SAFETY: the size of a page is a valid alignment.
        Some(size) => unsafe { malloc::memalign(page(), size) },
        // SAFETY: `malloc::malloc` accepts any size; this one fails.
        None => unsafe { malloc::malloc(usize::MAX) },
    }
}

/// # Safety
/// The requirements of C's `malloc_usable_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: as C's `malloc_usable_size` requires, `block` is null or a live block.
    unsafe { malloc::usable_size(block) }
}

fn page() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
