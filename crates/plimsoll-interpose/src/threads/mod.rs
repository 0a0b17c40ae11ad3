//! Interposes the C library's `pthread_create` and `thrd_create`, which create every thread of a
//! program: the standard library's, and those of C and C++ code.
//!
//! Without a [`Hook`], a call passes to the C library's function by one jump. A hook makes the call
//! itself, and can be notified when the thread begins. No frame of this crate is on the stack of
//! the created thread.
//!
//! # Supported systems
//! As for the crate, except in programs that link glibc statically (`crt-static`). Such a program
//! has only one function of each name, so calls could not be passed on. There, nothing is defined.
//! musl's function has a second name, by which static programs reach it.

#[cfg(interposes_threads)]
mod interposed;

use crate::in_force::in_force;
use core::ffi::{c_int, c_void};

/// A function that a thread executes.
pub type Routine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// A call of `pthread_create`, or a call of `thrd_create` in the same form.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    thread: *mut c_void,
    attributes: *const c_void,
    /// The function that the thread will execute.
    pub start: Start,
    /// The caller's frame pointer register.
    pub frame_pointer: usize,
    /// The caller's stack pointer after the call returns.
    pub stack_pointer: usize,
    /// The return address of the call.
    pub return_address: usize,
}

/// A function with its argument.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The function.
    pub routine: Routine,
    /// Its argument.
    pub argument: *mut c_void,
}

/// A function that is called in place of `pthread_create`. It must make the call
/// ([`Creation::make`]) and return its result. It must not unwind.
pub type Hook = unsafe extern "C" fn(&Creation) -> c_int;

/// A function that a thread with a token calls before all others. It returns the function that the
/// thread will execute. It must not unwind.
pub type Begin = unsafe extern "C" fn(token: *mut c_void) -> *const Start;

/// Sets the hooks, once.
pub fn set_hooks(hook: Hook, begin: Begin) {
    in_force!(threads => interposed::set_hooks(hook, begin), {
        let _ = (hook, begin);
    })
}

/// Returns whether threads that the code into which this crate is compiled creates are interposed.
pub fn is_linked() -> bool {
    in_force!(threads => interposed::is_linked(), false)
}

impl Creation {
    /// Makes the call. With a token, the thread passes it to [`Begin`] and executes the function
    /// that `Begin` returns. Without one, it executes the function of the caller.
    ///
    /// # Safety
    /// Call this once, in the hook. [`Begin`] must accept the token.
    pub unsafe fn make(&self, token: Option<*mut c_void>) -> c_int {
        in_force!(
            threads =>
            // SAFETY: the hook calls this function once, by its contract, so the arguments of the
            // call are still valid. `Begin` accepts the token.
            unsafe { interposed::create(self, token) },
            // Without interposed functions, no hook is called, so no `Creation` exists.
            unreachable!("{token:?}")
        )
    }
}
