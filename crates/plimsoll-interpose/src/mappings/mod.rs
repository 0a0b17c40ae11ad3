//! Interposes the C library's `mmap`, `mmap64`, `munmap` and `mremap`. Interpreters, allocators and
//! databases call them to obtain memory other than `malloc`'s.
//!
//! Until a [`Hook`] is set, the code here does what the C library's does: it makes the system call
//! and sets `errno`. A hook makes the call itself.
//!
//! Libraries may map memory in their constructors, which can precede the code that sets the hook. A
//! function of the same linked object that has the symbol `plimsoll_interpose_first_mapping_hook` and
//! the type of a [`Hook`] is the hook from the beginning.
//!
//! The C library's own calls are not interposed: the memory of its `malloc`, the stacks of threads,
//! and libraries that it loads. Neither are calls by an inline `syscall` instruction.
//!
//! # Supported systems
//! As for the crate, except in programs that link the C library statically (`crt-static`). A
//! sanitizer's functions of the same names are not called, so programs built with a sanitizer are
//! not supported.

#[cfg(interposes_functions)]
mod interposed;

use crate::in_force::in_force;

/// The called function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Function {
    /// `mmap` or `mmap64`.
    Map = 0,
    /// `munmap`.
    Unmap = 1,
    /// `mremap`.
    Remap = 2,
}

impl Function {
    /// Returns the number of its system call.
    pub fn number(self) -> i64 {
        in_force!(
            interposed::number(self),
            // Without interposed functions, no hook is called.
            unreachable!("{self:?}")
        )
    }
}

/// An intercepted call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The arguments as the caller passed them. Arguments that the function does not have are
    /// garbage, and so may be the upper halves of 32-bit arguments.
    pub arguments: [usize; 6],
    /// The called function.
    pub function: Function,
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

/// Sets the hook. Calls in progress are not affected.
pub fn set_hook(hook: Hook) {
    in_force!(interposed::set_hook(hook), {
        let _ = hook;
    })
}

/// Returns whether calls of the code into which this crate is compiled are interposed, for all of
/// the functions. See [`crate::is_linked`].
pub fn are_linked() -> bool {
    in_force!(interposed::are_linked(), false)
}
