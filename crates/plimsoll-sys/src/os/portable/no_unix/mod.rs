//! Systems without POSIX: the same items as `os::unix`, by the standard library.

pub mod atfork;
pub mod bell;
pub mod close_on_fork;
pub mod privileges;
pub mod signals;
pub mod threads;

use std::ffi::CStr;

/// Does nothing: a thread has its name from its creation.
#[inline]
pub fn name_thread(_: &CStr) {}

/// Returns 0: the system does not report the figure to Plimsoll.
#[inline]
pub fn peak_resident_bytes() -> u64 {
    0
}
