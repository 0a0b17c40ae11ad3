//! The limit on the size of files, `RLIMIT_FSIZE`: a write beyond it fails, and does not end this process.

use std::mem::zeroed;

/// Lets this process receive `SIGXFSZ` without a consequence, unless it ignores that signal. Programs that it executes
/// have the signal's default action, as before.
pub fn fail_at_limit() {
    extern "C" fn ignore(_: i32) {}
    // SAFETY: both actions are local and valid, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        if libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
        {
            action.sa_sigaction = ignore as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
    }
}
