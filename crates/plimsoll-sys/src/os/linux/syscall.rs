//! Direct system calls: without `errno`, cancellation points, or interposed symbols.
//!
//! A hook runs in the middle of the program's code, which may be about to read `errno`. The C
//! library's symbol `syscall` may be interposed by this project's own library.

use std::ffi::c_long;

use crate::arch;

/// Makes a system call and returns the kernel's result: `-4095..=-1` is a negated error number.
///
/// # Safety
/// The arguments must be valid for `number`, as for `syscall(2)`.
#[inline]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the arguments are valid for `number`, by this function's contract.
    unsafe { arch::system_call(number, arguments) }
}

/// Makes a system call with three arguments, as [`call`] with zeros for the others.
///
/// # Safety
/// As for [`call`].
#[inline]
pub unsafe fn call3(number: c_long, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: the arguments are valid for `number`, by this function's contract.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}
