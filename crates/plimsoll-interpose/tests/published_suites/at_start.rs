//! Linked into a suite, it has all futex calls go by a hook from before `main` on, and says at the
//! end what there was.

mod witness;

use std::ffi::c_int;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    println!("interposed: {}", witness::report());
}

extern "C" fn at_start() {
    witness::begin();
    // SAFETY: it may be called at any time.
    unsafe { atexit(at_exit) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
