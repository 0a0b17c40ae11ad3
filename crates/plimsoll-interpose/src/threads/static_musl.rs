//! The functions of musl in programs that contain it.
//!
//! Every function that the program may replace is a weak second name there.

use core::ffi::{c_int, c_void};

use super::{Create, c11_says};
use crate::threads::Routine;

unsafe extern "C" {
    fn __pthread_create(
        thread: *mut c_void,
        attributes: *const c_void,
        routine: Routine,
        argument: *mut c_void,
    ) -> c_int;
}

/// Returns musl's `pthread_create`.
pub(super) fn real() -> Create {
    __pthread_create
}

/// Passes on a call of C11's function, which is musl's `pthread_create` with marked attributes.
pub(super) unsafe extern "C" fn go_on_c11(
    thread: *mut c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    const C11: *const c_void = usize::MAX as *const c_void;
    // SAFETY: the arguments come from an unmodified call of `thrd_create`, which makes this call.
    c11_says(unsafe { __pthread_create(thread, C11, routine, argument) })
}
