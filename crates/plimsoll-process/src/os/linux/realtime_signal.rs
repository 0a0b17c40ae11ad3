//! A real-time signal that the program does not use.
//!
//! The signal is taken at first need. It is checked at each use, because the program may take it
//! over. The default action is never restored, because a signal still under way would then end the
//! program.

use std::ffi::{c_int, c_void};

use crate::loader;
use plimsoll_sys::os::filter;
use plimsoll_sys::primitives::{AtomicI32, Ordering};

/// A handler that runs on the thread that receives the signal.
pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A signal with one handler. `const`-constructible; no signal is taken before
/// [`RealtimeSignal::ready`].
pub struct RealtimeSignal {
    /// The requested signal; 0 for any.
    wanted: AtomicI32,
    /// The signal in use; 0 if there is none yet.
    chosen: AtomicI32,
}

impl Default for RealtimeSignal {
    fn default() -> Self {
        Self::new()
    }
}

impl RealtimeSignal {
    /// Creates a choice among all real-time signals.
    pub const fn new() -> Self {
        Self {
            wanted: AtomicI32::new(0),
            chosen: AtomicI32::new(0),
        }
    }

    /// Requests this signal from now on, if it is still unused when needed.
    pub fn set_wanted(&self, signal: c_int) {
        self.wanted.store(signal, Ordering::Relaxed);
        self.chosen.store(0, Ordering::Relaxed);
    }

    /// Returns a signal that `handler` handles; `None` if all are in use, or if a filter forbids handlers. All calls must pass the
    /// same handler. Not for signal handlers.
    pub fn ready(&self, handler: Handler) -> Option<c_int> {
        // Each handler ends with the second call.
        let used = [libc::SYS_rt_sigaction, libc::SYS_rt_sigreturn];
        if !used.into_iter().all(filter::allows) {
            return None;
        }
        let chosen = self.chosen.load(Ordering::Relaxed);
        if chosen != 0 && goes_to(chosen, handler) {
            return Some(chosen);
        }
        let wanted = self.wanted.load(Ordering::Relaxed);
        // From the highest number down: programs that use real-time signals count from the lowest.
        let candidates = Some(wanted)
            .filter(|&wanted| wanted != 0)
            .into_iter()
            .chain(range().rev());
        let taken = candidates
            .into_iter()
            .find(|&signal| goes_to(signal, handler) || take(signal, handler));
        self.chosen.store(taken.unwrap_or(0), Ordering::Relaxed);
        taken
    }

    /// Returns the signal in use; `None` before [`RealtimeSignal::ready`] has found one.
    pub fn chosen(&self) -> Option<c_int> {
        Some(self.chosen.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }
}

/// Returns the numbers of all real-time signals that a program may use.
pub fn range() -> std::ops::RangeInclusive<c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

fn goes_to(signal: c_int, handler: Handler) -> bool {
    action_of(signal).is_some_and(|action| action.sa_sigaction == handler as usize)
}

fn action_of(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all zeros is a valid `sigaction`, and the call fills it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

/// Takes a signal that has no handler.
fn take(signal: c_int, handler: Handler) -> bool {
    if action_of(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL) {
        return false;
    }
    loader::keep_this_library();
    // SAFETY: the handler has the type that the flags promise, is async-signal-safe, and exists as
    // long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // Blocks all other signals during the handler.
        libc::sigfillset(&raw mut action.sa_mask);
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, &raw const action, &raw mut before) != 0 {
            return false;
        }
        if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != handler as usize {
            // Another thread set a handler meanwhile.
            libc::sigaction(signal, &raw const before, std::ptr::null_mut());
            return false;
        }
    }
    true
}
