//! Signals of the calling thread.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Signals that an instruction of the receiving thread causes.
const OF_INSTRUCTIONS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// The calling thread's signals are blocked until this is dropped on the same thread. A signal that arrives
/// earlier is delivered then. Where a system call filter forbids to block signals, they stay as they are.
#[derive(Debug)]
pub struct BlockedSignals {
    /// `None` if they are not blocked.
    before: Option<libc::sigset_t>,
    _of_this_thread: PhantomData<*mut ()>,
}

impl BlockedSignals {
    /// Blocks all signals but those that the thread's own instructions cause. For code that a signal handler must
    /// not interrupt: a handler may fork, and a fork waits for locks that its own thread may hold.
    pub fn new() -> Self {
        if !may_block() {
            return Self {
                before: None,
                _of_this_thread: PhantomData,
            };
        }
        let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the first call initializes the set, and the others use it. Zero is a valid set.
        unsafe {
            libc::sigfillset(blocked.as_mut_ptr());
            for signal in OF_INSTRUCTIONS {
                libc::sigdelset(blocked.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
            Self {
                before: Some(before.assume_init()),
                _of_this_thread: PhantomData,
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
fn may_block() -> bool {
    crate::os::filter::allows(libc::SYS_rt_sigprocmask)
}

#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
fn may_block() -> bool {
    true
}

impl Default for BlockedSignals {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let Some(before) = self.before.filter(|_| may_block()) else {
            return;
        };
        // SAFETY: `before` is the set that the system wrote.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static RECEIVED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: i32) {
        RECEIVED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_blocked_signal_arrives_when_the_last_guard_is_dropped() {
        let received = || RECEIVED.load(Ordering::Relaxed);
        // SAFETY: the handler only adds to an atomic counter, and `raise` sends the signal to this thread.
        unsafe {
            libc::signal(libc::SIGWINCH, count as *const () as usize);
            let outer = BlockedSignals::new();
            let inner = BlockedSignals::new();
            libc::raise(libc::SIGWINCH);
            drop(inner);
            assert_eq!(received(), 0);
            drop(outer);
            assert_eq!(received(), 1);
            libc::raise(libc::SIGWINCH);
        }
        assert_eq!(received(), 2);
    }
}
