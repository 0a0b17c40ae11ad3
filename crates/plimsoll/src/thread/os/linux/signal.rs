//! The signal that interrupts running threads.
//!
//! Plimsoll takes an unused real-time signal at first need. It checks the signal at each use,
//! because the program may take it over. It never restores the default action, because a signal
//! still under way would then end the program.

use std::ffi::{c_int, c_void};

use plimsoll_sys::primitives::{AtomicI32, Ordering};

/// The handler that runs on the interrupted thread.
pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The requested signal; 0 for any.
static WANTED: AtomicI32 = AtomicI32::new(0);

/// The signal in use; 0 if there is none yet.
static CHOSEN: AtomicI32 = AtomicI32::new(0);

/// Requests this signal from now on, if it is still unused when needed.
pub(crate) fn set_wanted(signal: i32) {
    WANTED.store(signal, Ordering::Relaxed);
    CHOSEN.store(0, Ordering::Relaxed);
}

/// Returns the numbers that can be requested.
pub(crate) fn range() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// Returns a signal that `handler` handles; `None` if all are in use.
pub(super) fn ready(handler: Handler) -> Option<c_int> {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen != 0 && goes_to(chosen, handler) {
        return Some(chosen);
    }
    let wanted = WANTED.load(Ordering::Relaxed);
    // From the highest number down: programs that use real-time signals count from the lowest.
    let candidates = Some(wanted)
        .filter(|&wanted| wanted != 0)
        .into_iter()
        .chain(range().rev());
    let taken = candidates
        .into_iter()
        .find(|&signal| goes_to(signal, handler) || take(signal, handler));
    CHOSEN.store(taken.unwrap_or(0), Ordering::Relaxed);
    taken
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
    // SAFETY: the handler has the type that the flags promise, is async-signal-safe, and exists as
    // long as the program.
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
