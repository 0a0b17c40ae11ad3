//! The ways in which a program ends: before each, the report is written.
//!
//! By `exit`, and by the end of `main`, after all else that is done then; by `_exit`, `_Exit` and
//! `quick_exit` when they are called. What a process executes in its own place is reported on as
//! well: see [`crate::execution`]. The child of a `vfork`, which borrows this process's memory,
//! passes through untouched.

use std::ffi::{c_int, c_void};

use plimsoll::preload;

use crate::next::Next;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
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
