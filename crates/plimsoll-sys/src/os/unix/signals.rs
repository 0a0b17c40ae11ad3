//! Signals that end the process, and signals of the calling thread.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// The cause of a signal, and the consequence of a handler's return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A process, a timer, or a limit.
    Sender,
    /// An instruction of the receiving thread, which has been executed: the thread goes on behind it.
    Instruction,
    /// An instruction of the receiving thread, which is executed again.
    RepeatedInstruction,
}

/// A signal that ends the process by default, perhaps with a core dump.
#[derive(Clone, Copy, Debug)]
pub struct Fatal {
    /// The number of the signal.
    pub number: i32,
    /// The name of the signal.
    pub name: &'static str,
    /// The cause of the signal. Any process may send it as well.
    pub cause: Cause,
}

/// The signals that end the process by default.
pub const FATAL: [Fatal; 18] = {
    use Cause::{Instruction, RepeatedInstruction, Sender};
    const fn fatal(number: i32, name: &'static str, cause: Cause) -> Fatal {
        Fatal {
            number,
            name,
            cause,
        }
    }
    [
        fatal(libc::SIGHUP, "SIGHUP", Sender),
        fatal(libc::SIGINT, "SIGINT", Sender),
        fatal(libc::SIGQUIT, "SIGQUIT", Sender),
        fatal(libc::SIGILL, "SIGILL", RepeatedInstruction),
        fatal(libc::SIGTRAP, "SIGTRAP", Instruction),
        fatal(libc::SIGABRT, "SIGABRT", Instruction),
        fatal(libc::SIGBUS, "SIGBUS", RepeatedInstruction),
        fatal(libc::SIGFPE, "SIGFPE", RepeatedInstruction),
        fatal(libc::SIGUSR1, "SIGUSR1", Sender),
        fatal(libc::SIGSEGV, "SIGSEGV", RepeatedInstruction),
        fatal(libc::SIGUSR2, "SIGUSR2", Sender),
        fatal(libc::SIGPIPE, "SIGPIPE", Sender),
        fatal(libc::SIGALRM, "SIGALRM", Sender),
        fatal(libc::SIGTERM, "SIGTERM", Sender),
        fatal(libc::SIGXCPU, "SIGXCPU", Sender),
        fatal(libc::SIGXFSZ, "SIGXFSZ", Sender),
        fatal(libc::SIGVTALRM, "SIGVTALRM", Sender),
        fatal(libc::SIGSYS, "SIGSYS", Instruction),
    ]
};

impl Fatal {
    /// Returns the signal with this number.
    pub fn from_number(number: i32) -> Option<&'static Self> {
        FATAL.iter().find(|signal| signal.number == number)
    }

    /// Returns whether an instruction causes the signal. The thread may be at any place then, such as in the middle of
    /// its allocator.
    pub fn is_fault(&self) -> bool {
        self.cause != Cause::Sender
    }
}

/// Returns whether this is the name of a signal that an instruction causes.
pub fn is_fault(name: &str) -> bool {
    FATAL
        .iter()
        .any(|signal| signal.is_fault() && signal.name == name)
}

/// Sends a signal to the calling thread.
pub fn raise(signal: i32) {
    // SAFETY: the function accepts any number.
    unsafe { libc::raise(signal) };
}

/// The calling thread's signals are blocked until this is dropped on the same thread. A signal that arrives
/// earlier is delivered then. Where a system call filter forbids to block signals, they stay as they are.
#[derive(Debug)]
pub struct BlockedSignals {
    /// Whether this is one of the thread's [`Blocks`].
    is_counted: bool,
    _of_this_thread: PhantomData<*mut ()>,
}

/// The signals that a thread has blocked.
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
        for signal in FATAL.iter().filter(|signal| signal.is_fault()) {
            libc::sigdelset(blocked.as_mut_ptr(), signal.number);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
    }
    before
}

/// The signals that a thread had blocked.
pub(super) struct Mask(MaybeUninit<libc::sigset_t>);

/// Blocks these signals, too, for a thread that the calling one is about to create.
pub(super) fn block_also(signals: &[i32]) -> Mask {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first call initializes the set, and the others use it.
    unsafe {
        libc::sigemptyset(blocked.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
    }
    Mask(before)
}

/// Returns to the signals that were blocked before.
pub(super) fn restore(before: &Mask) {
    // SAFETY: `block_also` has filled the set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.0.as_ptr(), std::ptr::null_mut());
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
            // What has started the tests may block it, as perf does.
            let mut only = std::mem::zeroed();
            libc::sigemptyset(&raw mut only);
            libc::sigaddset(&raw mut only, libc::SIGWINCH);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
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
