//! The function by which a program unloads libraries. The names of their functions are kept for reports.

use std::ffi::{c_int, c_void};

use crate::reporting;

use crate::next::Next;

/// # Safety
/// The requirements of the C function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    static NEXT: Next = Next::new("dlclose\0");
    let Some(next) = NEXT.get() else {
        return -1;
    };
    reporting::around_unloading(|| {
        // SAFETY: `next` is the C library's function of that name, which has this type and gets the caller's argument.
        unsafe { std::mem::transmute::<*mut c_void, Close>(next)(library) }
    })
}
