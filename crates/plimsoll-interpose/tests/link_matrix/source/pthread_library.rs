//! A shared library that, when preloaded, counts the program's use of its locks.

#[path = "witness.rs"]
mod witness;

use std::ffi::c_int;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    println!("{}", witness::report());
}

extern "C" fn at_start() {
    witness::begin_counting();
    // SAFETY: `atexit` may be called at any time; `at_exit` is a static function.
    unsafe { atexit(at_exit) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
