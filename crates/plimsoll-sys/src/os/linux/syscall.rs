//! Direct system calls: without `errno`, cancellation points, or interposed symbols.
//!
//! A hook runs in the middle of the program's code, which may be about to read `errno`. The C
//! library's symbol `syscall` may be interposed by this project's own library.

//!
//! A call that a system call filter may forbid is not made, and fails with `EPERM`: see [`filter`].

use std::ffi::c_long;

use super::filter;
use crate::arch;

/// Makes a system call and returns the kernel's result: `-4095..=-1` is a negated error number.
///
/// # Safety
/// The arguments must be valid for `number`, as for `syscall(2)`.
#[inline]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    if !filter::allows(number) {
        return -(libc::EPERM as isize);
    }
    // SAFETY: the arguments are valid for `number`, by this function's contract.
    unsafe { arch::system_call(number, arguments) }
}

/// Makes a call of the program that was intercepted, whatever a filter says of it. Otherwise as [`call`].
///
/// # Safety
/// As for [`call`].
#[inline]
pub unsafe fn forward(number: c_long, arguments: [usize; 6]) -> isize {
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
