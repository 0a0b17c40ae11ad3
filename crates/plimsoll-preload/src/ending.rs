//! The ways in which a program ends: before each, the report is written.
//!
//! By `exit`, and by the end of `main`, after all else that is done then; by `_exit`, `_Exit` and
//! `quick_exit` when they are called. What a process executes in its own place is reported on as
//! well: see [`crate::execution`]. The child of a `vfork`, which borrows this process's memory,
//! passes through untouched.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use plimsoll::preload;

use crate::next::Next;

unsafe extern "C" {
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        object: *mut c_void,
    ) -> c_int;
}

/// What is registered first is done last. Before `main`, that is before the destructors of the
/// program and its libraries, which the C library registers as one; if it is of no object, not with
/// this library's either.
pub(crate) fn prepare() {
    // SAFETY: a function of the right type, which stays.
    unsafe { __cxa_atexit(at_end, null_mut(), null_mut()) };
}

extern "C" fn at_end(_: *mut c_void) {
    preload::report("exit");
}

macro_rules! ends {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// As C's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            preload::report(stringify!($name));
            if let Some(next) = NEXT.get() {
                // SAFETY: the C library's function of that name; it does not come back.
                unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(next)(status)
                };
            }
            loop {
                // SAFETY: what those functions come down to.
                unsafe { libc::syscall(libc::SYS_exit_group, status) };
            }
        }
    )*};
}

ends! {
    _exit;
    _Exit;
    quick_exit;
}
