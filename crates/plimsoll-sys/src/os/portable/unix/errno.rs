//! The error number of the C library, which hooks leave as it was.

use std::ffi::c_int;

/// Returns the address of the calling thread's error number.
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
fn address() -> *mut c_int {
    // SAFETY: the function has no preconditions.
    unsafe { libc::__error() }
}

/// Returns the address of the calling thread's error number.
#[cfg(any(target_os = "linux", target_os = "dragonfly"))]
fn address() -> *mut c_int {
    // SAFETY: the function has no preconditions.
    unsafe { libc::__errno_location() }
}

/// Returns the address of the calling thread's error number.
#[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
fn address() -> *mut c_int {
    // SAFETY: the function has no preconditions.
    unsafe { libc::__errno() }
}

/// Returns a null pointer: this system's error number is not restored.
#[cfg(not(any(
    target_vendor = "apple",
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_os = "openbsd",
)))]
fn address() -> *mut c_int {
    std::ptr::null_mut()
}

/// Calls `work` and restores the error number.
#[inline]
pub(super) fn keep<R>(work: impl FnOnce() -> R) -> R {
    let place = address();
    // SAFETY: the address is null or that of the calling thread's error number.
    unsafe {
        let before = place.as_ref().copied();
        let result = work();
        if let (Some(place), Some(before)) = (place.as_mut(), before) {
            *place = before;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_error_does_not_show() {
        let before = std::io::Error::last_os_error().raw_os_error();
        super::keep(|| std::fs::metadata("/no/such/file").is_err());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), before);
    }
}
