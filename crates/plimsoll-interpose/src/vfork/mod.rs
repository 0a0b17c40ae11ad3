//! Interposes the C library's `vfork`, whose child runs in the memory of its parent, on its thread.
//!
//! The kernel does not serve the restartable sequences of such a child, so code that counts by them must know of it.

#[cfg(interposes_syscall)]
mod interposed;

use crate::in_force::in_force;

/// A function that is called around the call. It must not unwind or change `errno`.
pub type Hook = extern "C" fn();

/// Sets the function that is called on the thread before a child exists, and the one that is called on it when the child
/// has ended or has executed a program, or when there is none.
pub fn set_hooks(before: Hook, after: Hook) {
    in_force!(syscall => interposed::set_hooks(before, after), {
        let _ = (before, after);
    })
}
