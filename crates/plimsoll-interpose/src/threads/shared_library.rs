//! The C library's functions in programs that link it dynamically.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Create, c11_says};
use crate::arch::threads;
use crate::threads::Routine;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `RTLD_NEXT`: searches the objects after the calling one.
const NEXT: *mut c_void = usize::MAX as *mut c_void;

/// Returns the C library's function, a sanitizer's, or a replacement that fails.
pub(super) fn real() -> Create {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    extern "C" fn none(_: *mut c_void, _: *const c_void, _: Routine, _: *mut c_void) -> c_int {
        const EAGAIN: c_int = 11;
        EAGAIN
    }
    let mut found = REAL.load(Ordering::Acquire);
    if found.is_null() {
        found = threads::sanitizers();
    }
    if found.is_null() {
        // SAFETY: the name is a C string. Concurrent lookups have the same result.
        found = unsafe { dlsym(NEXT, c"pthread_create".as_ptr()) };
    }
    if REAL.load(Ordering::Relaxed).is_null() {
        REAL.store(found, Ordering::Release);
    }
    if found.is_null() {
        return none;
    }
    // SAFETY: `found` is a function named `pthread_create`, which has this type.
    unsafe { core::mem::transmute::<*mut c_void, Create>(found) }
}

/// Passes on a call of C11's function, which calls `pthread_create` inside the C library.
pub(super) unsafe extern "C" fn go_on_c11(
    thread: *mut c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(*mut c_void, Routine, *mut c_void) -> c_int;
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut found = REAL.load(Ordering::Acquire);
    if found.is_null() {
        // SAFETY: the name is a C string. Concurrent lookups have the same result.
        found = unsafe { dlsym(NEXT, c"thrd_create".as_ptr()) };
        REAL.store(found, Ordering::Release);
    }
    if found.is_null() {
        return c11_says(-1);
    }
    // SAFETY: `found` is the C library's `thrd_create`, which has this type. The arguments come
    // from an unmodified call of it.
    unsafe { core::mem::transmute::<*mut c_void, Create>(found)(thread, routine, argument) }
}
