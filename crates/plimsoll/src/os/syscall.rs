//! System calls made directly: no `errno`, no cancellation point, no interposed symbol.
//!
//! A hook runs in the middle of the program's own code, which may be about to look at `errno`; and
//! the C library's `syscall` symbol may be interposed by this very crate.

use std::ffi::c_long;

/// Makes a system call and returns what the kernel returned: `-4095..=-1` is a negated error
/// number.
///
/// # Safety
/// The arguments must be right for `number`, as for `syscall(2)`.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers rcx and r11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call through the C library, with `errno` put back as it was.
///
/// # Safety
/// The arguments must be right for `number`, as for `syscall(2)`.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(miri))))]
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller vouches for the arguments; `__errno_location` is always valid.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = libc::syscall(number, a, b, c, d, e, f) as isize;
        let after = *errno;
        *errno = before;
        if result == -1 {
            -(after as isize)
        } else {
            result
        }
    }
}

/// [`call`] with the trailing arguments zero.
///
/// # Safety
/// As for [`call`].
#[inline]
pub(crate) unsafe fn call3(number: c_long, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: the caller vouches for the arguments.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}
