//! The signal by which running threads are interrupted.
//!
//! One of the real-time signals that nobody uses: taken when it is first needed, and looked at each
//! time, since the program may take it over. It is never given back: one that is still under way
//! would then end the program.

use std::ffi::{c_int, c_void};

use crate::primitives::{AtomicI32, Ordering};

/// What is called on the thread that is interrupted.
pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The one that was asked for; 0 if any will do.
static WANTED: AtomicI32 = AtomicI32::new(0);

/// The one in use; 0 if there is none yet.
static CHOSEN: AtomicI32 = AtomicI32::new(0);

/// Has this signal used from now on, if nobody else does by then.
pub(crate) fn set_wanted(signal: i32) {
    WANTED.store(signal, Ordering::Relaxed);
    CHOSEN.store(0, Ordering::Relaxed);
}

/// The numbers that can be wanted.
pub(crate) fn range() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// A signal that goes to `handler`; `None` if all are in use.
pub(super) fn ready(handler: Handler) -> Option<c_int> {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen != 0 && goes_to(chosen, handler) {
        return Some(chosen);
    }
    let wanted = WANTED.load(Ordering::Relaxed);
    // Programs that have use for some count from the lowest.
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
    // SAFETY: fills a struct of the right layout, for which all zeros is a value.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

/// Takes a signal if nobody has.
fn take(signal: c_int, handler: Handler) -> bool {
    if action_of(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL) {
        return false;
    }
    // SAFETY: the handler is of the type that the flags say, and does what a handler may; it lives
    // as long as the program.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // No other signal's handler on top of it.
        libc::sigfillset(&raw mut action.sa_mask);
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, &raw const action, &raw mut before) != 0 {
            return false;
        }
        if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != handler as usize {
            // Somebody took it meanwhile.
            libc::sigaction(signal, &raw const before, std::ptr::null_mut());
            return false;
        }
    }
    true
}
