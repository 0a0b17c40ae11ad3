//! Takes over the C library's `pthread_create` and `thrd_create`, by which every thread of a
//! program is created: the standard library's, and those of C and C++ code.
//!
//! Without a [`Hook`], a call goes on to the C library's function by one jump. With one, that makes
//! the call itself, and may have the thread say when it begins. No frame of this crate is on the
//! stack of the thread that is created.
//!
//! # Where it is in force
//! Where the crate is, but not in a program that has the C library in it (`crt-static`): that has
//! only one function of each name, and there is none to go on to. There, nothing is defined.

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
))]
mod x86_64;

use crate::in_force::in_force;
use core::ffi::{c_int, c_void};

/// What a thread executes.
pub type Routine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// A call of `pthread_create`, or one of `thrd_create` as if it were that.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    thread: *mut c_void,
    attributes: *const c_void,
    /// What the thread is to execute.
    pub start: Start,
    /// The caller's frame pointer register.
    pub frame_pointer: usize,
    /// The caller's stack pointer once it is returned to.
    pub stack_pointer: usize,
    /// Where the caller goes on.
    pub return_address: usize,
}

/// A function, and what it is called with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The function.
    pub routine: Routine,
    /// Its argument.
    pub argument: *mut c_void,
}

/// What is called in place of `pthread_create`. It is to make the call ([`Creation::make`]) and to
/// return what that returned. It must not unwind.
pub type Hook = unsafe extern "C" fn(&Creation) -> c_int;

/// What is called by a thread that was created with a token, before anything else. It returns what
/// the thread is to execute. It must not unwind.
pub type Begin = unsafe extern "C" fn(token: *mut c_void) -> *const Start;

/// Sets the hooks, once.
pub fn set_hooks(hook: Hook, begin: Begin) {
    in_force!(x86_64::set_hooks(hook, begin), {
        let _ = (hook, begin);
    })
}

/// Whether threads that are created by the code that this is compiled into come by here.
pub fn is_linked() -> bool {
    in_force!(x86_64::is_linked(), false)
}

impl Creation {
    /// Makes the call. With a token, the thread calls [`Begin`] with that, and executes what that
    /// returns; else what the caller wants.
    ///
    /// # Safety
    /// In the hook, once. The token is what the other hook takes.
    pub unsafe fn make(&self, token: Option<*mut c_void>) -> c_int {
        in_force!(
            // SAFETY: the caller's.
            unsafe { x86_64::create(self, token) },
            // There is none without a hook that was called.
            unreachable!("{token:?}")
        )
    }
}
