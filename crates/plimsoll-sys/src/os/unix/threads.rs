//! Threads that run nothing of the standard library before their start function.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use super::signals::{self, BlockedSignals};

/// The start function of a thread. Must not unwind.
pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// A thread that is neither joined nor detached.
#[derive(Debug)]
pub struct Thread(libc::pthread_t);

// SAFETY: the handle of a thread is valid in all threads of the process.
unsafe impl Send for Thread {}
// SAFETY: a shared reference permits no operation.
unsafe impl Sync for Thread {}

/// Signals that another process may send, and for which a thread of the program may wait. An instruction of the new thread
/// that causes one ends the process as by default. The signal of filters is not among them: the program may have a
/// handler for it that continues.
const OF_OTHERS: [i32; 6] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGTRAP,
];

/// Creates a thread with a stack of `stack` bytes that calls `start` with an argument. It blocks all signals but SIGSYS,
/// which system call filters raise: the program may wait for signals in a thread of its choice.
///
/// # Errors
/// The system's error: too many threads, or out of memory. Or the call that a system call filter forbids: the thread
/// would have the filter, too.
///
/// # Safety
/// `start` may be called with `argument`, in another thread.
pub unsafe fn spawn(stack: usize, start: Start, argument: *mut c_void) -> io::Result<Thread> {
    #[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
    check_filter()?;
    let check = |status| match status {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are used between their initialization and destruction; `start`
    // accepts the argument, by this function's contract; and the thread is initialized if its creation succeeds.
    unsafe {
        check(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        // A failure leaves the default size.
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
        let blocked = BlockedSignals::new();
        let before = signals::block_also(&OF_OTHERS);
        let attributes = attributes.as_mut_ptr();
        let status = libc::pthread_create(thread.as_mut_ptr(), attributes, start, argument);
        signals::restore(&before);
        drop(blocked);
        libc::pthread_attr_destroy(attributes);
        check(status)?;
        HAS_CREATED.store(true, Ordering::Relaxed);
        Ok(Thread(thread.assume_init()))
    }
}

/// Whether this code has created a thread of the process, or of a process that it was forked from.
static HAS_CREATED: AtomicBool = AtomicBool::new(false);

/// Checks that no filter forbids the calls for a new thread. The C library also installs a signal handler, with the first
/// thread of the process.
#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
fn check_filter() -> Result<(), crate::os::filter::Forbidden> {
    use crate::os::filter::{THREADS, check};
    check(&THREADS)?;
    match HAS_CREATED.load(Ordering::Relaxed) {
        true => Ok(()),
        false => check(&[(libc::SYS_rt_sigaction, "rt_sigaction")]),
    }
}

impl Thread {
    /// Waits until the thread has ended.
    pub fn join(self) {
        // SAFETY: the thread is neither joined nor detached, and this consumes the handle.
        unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) };
    }

    /// Lets the system free the thread when it ends.
    pub fn detach(self) {
        // SAFETY: the thread is neither joined nor detached, and this consumes the handle.
        unsafe { libc::pthread_detach(self.0) };
    }
}
