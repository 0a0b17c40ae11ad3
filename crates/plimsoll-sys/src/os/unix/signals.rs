//! Signals of the calling thread.

use std::cell::Cell;
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
    /// Whether this is one of the thread's [`Blocks`].
    is_counted: bool,
    _of_this_thread: PhantomData<*mut ()>,
}

/// What a thread has blocked.
struct Blocks {
    /// The number of values that exist.
    count: Cell<u32>,
    /// The signals that were blocked before the first of them.
    before: Cell<MaybeUninit<libc::sigset_t>>,
}

thread_local! {
    static BLOCKS: Blocks = const {
        Blocks {
            count: Cell::new(0),
            before: Cell::new(MaybeUninit::uninit()),
        }
    };
}

impl BlockedSignals {
    /// Blocks all signals but those that the thread's own instructions cause. For code that a signal handler must
    /// not interrupt: a handler may fork, and a fork waits for locks that its own thread may hold. Only the first
    /// of several values makes a system call, and the last that is dropped.
    pub fn new() -> Self {
        let is_counted = BLOCKS.with(|blocks| {
            let count = blocks.count.get();
            if count == 0 {
                if !may_block() {
                    return false;
                }
                blocks.before.set(block());
            }
            blocks.count.set(count + 1);
            true
        });
        Self {
            is_counted,
            _of_this_thread: PhantomData,
        }
    }
}

/// Blocks signals, and returns those that were blocked before.
fn block() -> MaybeUninit<libc::sigset_t> {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first call initializes the set, and the others use it.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OF_INSTRUCTIONS {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
    }
    before
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
        if !self.is_counted {
            return;
        }
        BLOCKS.with(|blocks| {
            let count = blocks.count.get() - 1;
            blocks.count.set(count);
            if count == 0 && may_block() {
                let before = blocks.before.get();
                // SAFETY: `block` has filled the set.
                unsafe {
                    libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
                }
            }
        });
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
            // In any order.
            drop(outer);
            assert_eq!(received(), 0);
            drop(inner);
            assert_eq!(received(), 1);
            libc::raise(libc::SIGWINCH);
        }
        assert_eq!(received(), 2);
    }
}
