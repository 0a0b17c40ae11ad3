//! Threads that are created by code that nobody changed.

use std::ffi::{c_int, c_void};

use plimsoll_interpose::threads::{self, Creation, Start};

use crate::stack::{self, Registers};
use crate::thread::births::{self, Birth};
use crate::thread::stacks;

/// Has threads that are created from now on remembered, with who created them.
pub(crate) fn start() {
    threads::set_hooks(called, begins);
}

/// Whether that is so of threads that this code creates.
pub(crate) fn are_seen() -> bool {
    threads::is_linked()
}

/// A thread is to be created.
unsafe extern "C" fn called(creation: &Creation) -> c_int {
    #[cfg(feature = "preload")]
    crate::preload::set_off();
    let caller = Registers {
        instruction: creation.return_address as u64,
        stack: creation.stack_pointer as u64,
        frame: creation.frame_pointer as u64,
    };
    let birth = births::enter(stack::Start::Caller(caller));
    let Some(birth) = birth else {
        // SAFETY: this is the hook.
        return unsafe { creation.make(None) };
    };
    let Start { routine, argument } = creation.start;
    birth.set_start([routine as usize, argument as usize]);
    // SAFETY: this is the hook; `begins` takes a birth.
    let result = unsafe { creation.make(Some(std::ptr::from_ref(birth) as *mut c_void)) };
    if result != 0 {
        birth.release();
    }
    result
}

/// A thread that was created begins.
unsafe extern "C" fn begins(birth: *mut c_void) -> *const Start {
    // SAFETY: what `called` passed, which is static.
    let birth: &'static Birth = unsafe { &*birth.cast() };
    birth.begin();
    stacks::enter();
    // Two words, a function and its argument.
    birth.start().cast()
}
