//! Takes over the C library's `mmap`, `mmap64`, `munmap` and `mremap`, by which a program has
//! memory of its own beside that of `malloc`: interpreters, allocators, databases.
//!
//! Until there is a [`Hook`], what is executed here is what the C library executes: the system call
//! is made, and `errno` is set. With one, that makes the call.
//!
//! Calls of the C library's own do not come by here: what its `malloc` maps, the stacks of threads,
//! libraries that it loads. Nor do calls that are made with an instruction of their own.
//!
//! # Where it is in force
//! Where the crate is, but not in a program that has the C library in it (`crt-static`). A
//! sanitizer that has functions of the same names is not called: this is not for programs that are
//! built with one.

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
))]
mod x86_64;

use crate::in_force::in_force;

/// Which function was called.
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
    /// The number of its system call.
    pub fn number(self) -> i64 {
        match self {
            Self::Map => 9,
            Self::Unmap => 11,
            Self::Remap => 25,
        }
    }
}

/// A call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// As the caller passed them: those that the function does not have are garbage, and so may
    /// be the upper halves of those that are 32 bits wide.
    pub arguments: [usize; 6],
    /// Which function it is.
    pub function: Function,
    /// The caller's frame pointer register.
    pub frame_pointer: usize,
    /// The caller's stack pointer once it is returned to.
    pub stack_pointer: usize,
    /// Where the caller goes on.
    pub return_address: usize,
}

/// What is called in place of the system call. It is to make the call itself, directly, and to
/// return what the kernel returned: `-4095..=-1` becomes `errno` and -1. It must not unwind, and
/// must leave `errno` alone.
pub type Hook = unsafe extern "C" fn(&Call) -> isize;

/// Sets the hook. Calls that are under way are not affected.
pub fn set_hook(hook: Hook) {
    in_force!(x86_64::set_hook(hook), {
        let _ = hook;
    })
}

/// Whether calls of the code that this is compiled into come by here, to all of the functions: see
/// [`crate::is_linked`].
pub fn are_linked() -> bool {
    in_force!(x86_64::are_linked(), false)
}
