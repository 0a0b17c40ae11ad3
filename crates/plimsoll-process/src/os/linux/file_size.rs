//! Writes to files under the process's limit on their size, `RLIMIT_FSIZE`.
//!
//! The kernel answers a write or a truncation beyond that limit with the error `EFBIG`, and sends `SIGXFSZ` to the
//! calling thread, which ends the process unless the program handles it. The signal must not be the consequence of a
//! write that the program did not make.

use std::io;

use plimsoll_sys::os::filter::{self, Named};
use plimsoll_sys::os::syscall::call;

/// The signal as a set of the kernel, which has a bit for each signal.
static SIGNAL: u64 = 1 << (libc::SIGXFSZ - 1);

/// The calls that hold the signal off.
const CALLS: [Named; 3] = [
    (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    (libc::SYS_rt_sigpending, "rt_sigpending"),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
];

/// Returns the longest file in bytes that the process may write; `u64::MAX` without a limit.
///
/// # Errors
/// The system's error, or the filter's.
pub fn limit() -> io::Result<u64> {
    // The limit, and the highest one that the process may set.
    let mut limits = [0_u64; 2];
    let (resource, to) = (libc::RLIMIT_FSIZE as usize, limits.as_mut_ptr() as usize);
    // SAFETY: the call only reads a limit of this process, and writes two words.
    match unsafe { call(libc::SYS_prlimit64, [0, resource, 0, to, 0, 0]) } {
        0 => Ok(limits[0]),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

/// Calls `write`, in which a write beyond the limit returns the error `EFBIG` and sends no signal.
///
/// # Errors
/// Those of `write`; or the call that a filter forbids and that is needed, unless the process has no limit. `write` is
/// not called then.
pub fn without_signal<R>(write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    let held = match filter::check(&CALLS) {
        Ok(()) => Some(HeldSignal::hold()),
        Err(_) if limit().is_ok_and(|limit| limit == u64::MAX) => None,
        Err(forbidden) => return Err(forbidden.into()),
    };
    let written = write();
    drop(held);
    written
}

/// The calling thread does not receive the signal until this is dropped. It keeps a signal that was pending before.
struct HeldSignal {
    /// The signals that the thread blocked before.
    before: u64,
    was_pending: bool,
}

impl HeldSignal {
    fn hold() -> Self {
        let (mut before, mut pending) = (0_u64, 0_u64);
        block(libc::SIG_BLOCK, &SIGNAL, &mut before);
        // SAFETY: `pending` has the size of the kernel's set.
        unsafe {
            let to = &raw mut pending as usize;
            call(libc::SYS_rt_sigpending, [to, size_of::<u64>(), 0, 0, 0, 0]);
        }
        Self {
            before,
            was_pending: pending & SIGNAL != 0,
        }
    }
}

impl Drop for HeldSignal {
    fn drop(&mut self) {
        if !self.was_pending {
            let at_once = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let (set, time) = (&raw const SIGNAL as usize, &raw const at_once as usize);
            // The kernel takes a signal to this thread before one to the process.
            //
            // SAFETY: the set and the time live until the call returns.
            unsafe {
                let arguments = [set, 0, time, size_of::<u64>(), 0, 0];
                call(libc::SYS_rt_sigtimedwait, arguments);
            }
        }
        let mut held = 0;
        block(libc::SIG_SETMASK, &self.before, &mut held);
    }
}

/// Changes the signals that the thread blocks, and stores the earlier ones in `before`.
fn block(how: i32, set: &u64, before: &mut u64) {
    let (set, before) = (&raw const *set as usize, &raw mut *before as usize);
    // SAFETY: both sets have the size of the kernel's, and live until the call returns.
    unsafe {
        let arguments = [how as usize, set, before, size_of::<u64>(), 0, 0];
        call(libc::SYS_rt_sigprocmask, arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a forked child returns: a limit affects all threads of a process.
    fn in_child(work: impl FnOnce() -> bool) -> libc::c_int {
        let mut status = 0;
        // SAFETY: the child makes system calls only, and ends without running anything of its parent.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::_exit(if work() { 0 } else { 7 });
            }
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        status
    }

    /// Writes 10 bytes to an unnamed file. Returns the number of written bytes, or a negative error number.
    fn write() -> io::Result<i32> {
        // SAFETY: the name ends with a zero, and the text is 10 bytes long.
        unsafe {
            let file = libc::memfd_create(c"limited".as_ptr(), 0);
            let written = libc::write(file, c"ten bytes.".as_ptr().cast(), 10);
            match written {
                -1 => Err(io::Error::last_os_error()),
                written => Ok(written as i32),
            }
        }
    }

    fn set_limit(bytes: u64) {
        let limit = libc::rlimit {
            rlim_cur: bytes as libc::rlim_t,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit lives until the call returns.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    }

    #[test]
    fn a_write_beyond_the_limit_fails_without_a_signal() {
        let is_too_large = |written: io::Result<i32>| {
            written.is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG))
        };
        let status = in_child(|| {
            set_limit(0);
            limit().is_ok_and(|limit| limit == 0) && is_too_large(without_signal(write))
        });
        assert_eq!(status, 0, "{status:#x}");
        let status = in_child(|| {
            set_limit(4);
            without_signal(write).is_ok_and(|written| written == 4)
        });
        assert_eq!(status, 0, "{status:#x}");
        // A later write of the program has the usual consequence.
        let status = in_child(|| {
            set_limit(0);
            is_too_large(without_signal(write)) && write().is_ok()
        });
        assert_eq!(status & 127, libc::SIGXFSZ);
    }

    #[test]
    fn a_signal_that_was_pending_before_stays_pending() {
        let status = in_child(|| {
            set_limit(0);
            let mut before = 0;
            block(libc::SIG_BLOCK, &SIGNAL, &mut before);
            // SAFETY: sends a signal to this thread, which blocks it.
            unsafe { libc::raise(libc::SIGXFSZ) };
            let is_held = without_signal(write).is_err();
            block(libc::SIG_SETMASK, &before, &mut 0);
            is_held
        });
        assert_eq!(status & 127, libc::SIGXFSZ);
    }
}
