//! Detects privileges that the user who started the process lacks.

/// Returns whether the kernel marked the process as privileged at `execve`: the program is setuid
/// or setgid, or has file capabilities. The user who started the process controls its environment,
/// and must not gain control of its privileges.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
pub fn are_elevated() -> bool {
    // SAFETY: `getauxval` reads the auxiliary vector, which the kernel wrote before the process
    // began. The kernel always passes `AT_SECURE`, so the call leaves `errno` alone.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns `false`: other systems have no such mark.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[inline]
pub fn are_elevated() -> bool {
    false
}
