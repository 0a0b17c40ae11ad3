//! Unix systems other than Linux, through the C library.

pub mod bell;
pub mod clocks;
mod errno;
mod own_stack;
pub mod pages;
pub mod privileges;

pub use own_stack::own_stack;

use std::ffi::CStr;

/// Whether [`barrier`] does anything.
pub(super) const HAS_BARRIER: bool = false;

/// Does nothing: the system has no such call.
pub(super) fn barrier() {}

/// Names the calling thread, as far as the system supports that.
#[cfg(target_vendor = "apple")]
pub fn name_thread(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::pthread_setname_np(name.as_ptr()) };
}

/// Names the calling thread, as far as the system supports that.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn name_thread(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
}

/// Names the calling thread, as far as the system supports that.
#[cfg(any(target_os = "freebsd", target_os = "dragonfly", target_os = "openbsd"))]
pub fn name_thread(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::pthread_set_name_np(libc::pthread_self(), name.as_ptr()) };
}

/// Does nothing: this system's names of threads are not supported.
#[cfg(not(any(
    target_vendor = "apple",
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "openbsd",
)))]
pub fn name_thread(_: &CStr) {}

/// The unit of the system's figure, in bytes.
const RESIDENT_UNIT: u64 = if cfg!(target_vendor = "apple") {
    1
} else {
    1024
};

/// Returns the most memory that the process ever had resident, in bytes; 0 if unknown.
pub fn peak_resident_bytes() -> u64 {
    // SAFETY: the call fills a struct of the right layout, for which all zeros is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
            return 0;
        }
        usage
    };
    usage.ru_maxrss as u64 * RESIDENT_UNIT
}
