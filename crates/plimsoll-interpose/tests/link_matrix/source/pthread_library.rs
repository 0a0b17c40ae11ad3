//! A shared library that counts, from when it is preloaded, what the program does with its locks.

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
    // SAFETY: it may be called at any time.
    unsafe { atexit(at_exit) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
