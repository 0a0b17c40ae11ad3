//! Hooks of thread creation in unmodified code.

use std::ffi::{c_int, c_void};

use plimsoll_interpose::threads::{self, Creation, Start};

use plimsoll_core::stack::{self, Registers};
use plimsoll_threads::thread;
use plimsoll_threads::thread::creation::{self, CreatedThread};
use plimsoll_threads::thread::stacks;

/// Starts to record the creator of each thread.
pub fn start() {
    threads::set_hooks(called, begins);
}

/// The function that is called before each thread is created.
static AT_CREATIONS: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// Registers a function that is called before each thread is created. A later call has no effect.
pub fn call_at_creations(observer: fn()) {
    let _ = AT_CREATIONS.set(observer);
}

/// Makes a thread, and records its creator.
unsafe extern "C" fn called(creation: &Creation) -> c_int {
    plimsoll_core::single_thread::note_creation();
    if let Some(observer) = AT_CREATIONS.get() {
        observer();
    }
    let caller = Registers {
        instruction: creation.return_address as u64,
        stack: creation.stack_pointer as u64,
        frame: creation.frame_pointer as u64,
        link: 0,
    };
    let birth = creation::enter(stack::Start::Caller(caller));
    let Some(birth) = birth else {
        // SAFETY: this is the hook that the creation belongs to.
        return unsafe { creation.make(None) };
    };
    let Start { routine, argument } = creation.start;
    birth.set_start([routine as usize, argument as usize]);
    // SAFETY: this is the hook that the creation belongs to; `begins` expects a `CreatedThread`.
    let result = unsafe { creation.make(Some(std::ptr::from_ref(birth) as *mut c_void)) };
    if result != 0 {
        birth.release();
    }
    result
}

/// Runs at the start of a created thread.
unsafe extern "C" fn begins(birth: *mut c_void) -> *const Start {
    // SAFETY: `called` passed this address of a static `CreatedThread`.
    let birth: &'static CreatedThread = unsafe { &*birth.cast() };
    birth.begin();
    match birth.is_own() {
        // It enters the list of these threads later.
        true => stacks::enter(),
        false => thread::enter(),
    }
    // A `Start` is two words, a function and its argument, as in `CreatedThread`.
    birth.start().cast()
}
