//! Every other processor and system: through the C library, or not at all.

use std::ffi::CStr;

use super::ControlBlock;

/// The version of the oldest functions of the GNU C library; not known here.
pub const FIRST_GLIBC_VERSION: &CStr = c"";

/// No counter is trusted.
pub const CLOCK_SOURCE: &str = "";

/// No processor: a filter that asks for it allows nothing.
pub const FILTER_ARCHITECTURE: u32 = 0;

/// The position of a thread's control block.
pub const CONTROL_BLOCK: ControlBlock = ControlBlock::AtPointer;

/// Returns a word that is never 0, and different in all threads that live.
#[inline]
pub fn thread_pointer() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| std::ptr::from_ref(own) as usize)
}

/// Makes a system call through the C library, and restores `errno`.
///
/// # Safety
/// The arguments are valid for `number`, as for `syscall(2)`.
#[cfg(target_os = "linux")]
pub unsafe fn system_call(number: std::ffi::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the arguments are valid by this function's contract; `__errno_location` returns the
    // calling thread's variable.
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

/// Returns `None`: restartable sequences are not supported.
#[inline]
pub fn rseq_area_offset() -> Option<isize> {
    None
}

/// Returns 0: no counter is read.
#[inline]
pub fn ticks() -> u64 {
    0
}

/// Returns `None`: no counter is read.
#[inline]
pub fn ticks_per_second() -> Option<u64> {
    None
}

/// Reads a word that other functions may own.
///
/// # Safety
/// The address is aligned and readable.
#[inline(always)]
pub unsafe fn read_word(address: usize) -> usize {
    // SAFETY: readable by this function's contract.
    unsafe { (address as *const usize).read_volatile() }
}

/// Calls a function on the calling thread's own stack: this processor's stack pointer is not changed.
///
/// # Safety
/// `argument` has the type that the function takes, and the function does not unwind.
pub unsafe fn call_on_stack(
    _top: usize,
    function: extern "C" fn(*mut std::ffi::c_void),
    argument: *mut std::ffi::c_void,
) {
    function(argument);
}
