//! Linked into a suite, passes all futex calls through a hook from before `main`, and prints the
//! hook's counts at exit.

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
    // SAFETY: `atexit` may be called at any time; `at_exit` is a static function.
    unsafe { atexit(at_exit) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
