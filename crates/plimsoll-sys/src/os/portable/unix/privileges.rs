//! Detects privileges that the user who started the process lacks.

/// Returns whether the process has another user or group than the one that started it: the program
/// is setuid or setgid. The user who started the process controls its environment, and must not gain
/// control of its privileges.
#[inline]
pub fn are_elevated() -> bool {
    // SAFETY: these functions have no preconditions and cannot fail.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}
