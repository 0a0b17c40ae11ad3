//! The ends of a process: before each, the library writes the report.
//!
//! At `exit` and at the end of `main`, the report follows all other exit handlers. At `_exit`,
//! `_Exit` and `quick_exit`, it precedes the call. A process that executes another program reports
//! as well: see [`crate::execution`]. In the child of a `vfork`, which shares this process's
//! memory, calls are passed on without a report.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::reporting;

use crate::next::Next;

unsafe extern "C" {
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        object: *mut c_void,
    ) -> c_int;
}

/// Registers the report to run last. `exit` calls functions in the reverse order of registration.
/// This registration comes before `main`, and so before the single one by which the C library runs
/// the destructors of the program and its libraries. The null object keeps the report from running
/// with this library's own destructors.
pub(crate) fn prepare() {
    // SAFETY: the function has the right type, and this library is never unloaded.
    unsafe { __cxa_atexit(at_end, null_mut(), null_mut()) };
}

extern "C" fn at_end(_: *mut c_void) {
    reporting::report("exit");
}

macro_rules! ends {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// The requirements of the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            reporting::report(stringify!($name));
            if let Some(next) = NEXT.get() {
                // SAFETY: `next` is the C library's function of that name, which does not return.
                unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(next)(status)
                };
            }
            loop {
                // SAFETY: `exit_group` takes an integer, and ends the process.
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
