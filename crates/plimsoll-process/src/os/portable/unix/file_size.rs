//! Writes to files under the process's limit on their size, `RLIMIT_FSIZE`.

use std::io;
use std::mem::MaybeUninit;

/// Calls `write`, in which a write beyond the limit returns the error `EFBIG` and sends no signal. Not for hooks.
///
/// # Errors
/// Those of `write`.
pub fn without_signal<R>(write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    let mut signal = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first two calls initialize the set, and the third the earlier one. Zero is a valid set.
    let before = unsafe {
        libc::sigemptyset(signal.as_mut_ptr());
        libc::sigaddset(signal.as_mut_ptr(), libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, signal.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let was_pending = is_pending();
    let written = write();
    // SAFETY: both sets are initialized, and `taken` is writable. A pending signal lets `sigwait` return at once.
    unsafe {
        if !was_pending && is_pending() {
            let mut taken = 0;
            libc::sigwait(signal.as_ptr(), &raw mut taken);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
    written
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first call initializes the set, for which zero is valid as well.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1
    }
}
