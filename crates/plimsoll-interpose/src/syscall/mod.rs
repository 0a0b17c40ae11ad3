//! System calls that the interposed `syscall` and `prctl` intercept: `futex`, and those that are watched.

#[cfg(interposes_syscall)]
mod interposed;

use crate::in_force::in_force;

/// Whether this crate defines anything on this system.
pub const IN_FORCE: bool = cfg!(interposes_syscall);

/// An intercepted call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The number of the system call. Callers may leave garbage in the upper half.
    pub number: usize,
    /// The arguments as the caller passed them. Arguments that the call does not use are garbage, and so
    /// may be the upper halves of 32-bit arguments.
    pub arguments: [usize; 6],
    /// The caller's frame pointer register.
    pub frame_pointer: usize,
    /// The caller's stack pointer after the call returns.
    pub stack_pointer: usize,
    /// The return address of the call.
    pub return_address: usize,
}

/// A function that is called in place of the system call. It must make the call directly and return
/// the kernel's result: `-4095..=-1` becomes `errno` and -1. It must not unwind or change `errno`.
pub type Hook = unsafe extern "C" fn(&Call) -> isize;

/// The futex calls that go to the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// None.
    Off = 0,
    /// All.
    All = 1,
}

/// The numbers of system calls that can be watched are below this.
pub const NUMBERS: u32 = 512;

/// Sets the hook of the calls that [`watch`] selects. Call this before.
pub fn set_watcher(hook: Hook) {
    in_force!(syscall => interposed::set_watcher(hook), {
        let _ = hook;
    })
}

/// Makes calls of that number go to the hook of [`set_watcher`] from now on, whether they are made by `syscall` or, if it
/// is the number of `prctl`, by that function. For calls that return once, on the stack on which they were made. A number
/// from [`NUMBERS`] on, and that of `futex`, is ignored.
pub fn watch(number: u32) {
    in_force!(syscall => interposed::watch(number), {
        let _ = number;
    })
}

/// Sets the hook of futex calls. Call this before the mode is set to anything but [`Mode::Off`]. A later hook
/// replaces an earlier one, in which calls may still be executing.
pub fn set_hook(hook: Hook) {
    in_force!(syscall => interposed::set_hook(hook), {
        let _ = hook;
    })
}

/// Returns the hook that was set, if any, so that a new hook can call it.
pub fn hook() -> Option<Hook> {
    in_force!(syscall => interposed::hook(), None)
}

/// Sets which calls go to the hook from now on. Calls in progress are not affected.
pub fn set_mode(mode: Mode) {
    in_force!(syscall => interposed::set_mode(mode), {
        let _ = mode;
    })
}

/// Returns whether calls of the code into which this crate is compiled are interposed. They are not
/// if another definition of `syscall` takes precedence: the C library's, or the program's. Either
/// can happen to a shared library that exports its own definition and was not preloaded.
pub fn is_linked() -> bool {
    in_force!(syscall => interposed::is_linked(), false)
}
