//! Linux: a timer on each thread's CPU time, which sends a real-time signal to that thread.
//!
//! A thread makes its timer itself when it begins, where that is seen, or else at its first
//! allocation ([`timers::arm_own`]). For all others, threads of C libraries among them, a thread of
//! Plimsoll looks at the list of threads several times a second ([`mod@watch`]). A thread ends its timer
//! itself, if it made it.

mod handler;
mod timers;
mod watch;

use plimsoll_sys::os::{clock, filter};
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::super::StartError;
#[cfg(feature = "interpose")]
use super::super::{RATE, lock};
use plimsoll_threads::thread;

pub(crate) use handler::{HANDLER_TIMES, lost_samples};
pub(crate) use timers::unwatched_threads;

/// The period of the current recording in nanoseconds; 0 for none.
static PERIOD: AtomicU64 = AtomicU64::new(0);

/// The number of the current recording, or of the last one. [`stop`] changes it before it removes
/// all timers, so a thread that has made a timer checks afterwards that it is unchanged.
static RECORDING: AtomicU64 = AtomicU64::new(0);

/// Registers the functions that are called at the begin and end of threads. Called once, before
/// threads exist.
pub fn prepare() {
    timers::prepare();
    thread::call_at_beginnings(timers::arm_own);
}

/// The calls that recordings need. A handler ends with the last one.
const CALLS: [filter::Named; 5] = [
    (libc::SYS_timer_create, "timer_create"),
    (libc::SYS_timer_settime, "timer_settime"),
    (libc::SYS_timer_delete, "timer_delete"),
    (libc::SYS_rt_sigaction, "rt_sigaction"),
    (libc::SYS_rt_sigreturn, "rt_sigreturn"),
];

/// Ends the samples before a filter that leaves the process these system calls, unless they suffice. A session goes on
/// without further samples.
#[cfg(feature = "interpose")]
pub(crate) fn before_filter(allowed: &filter::Calls) {
    if !CALLS.iter().all(|&(number, _)| allowed.contains(number)) {
        RATE.store(0, Ordering::Relaxed);
        lock().end_recording();
    }
}

/// Begins a recording. No other may be running.
pub(in super::super) fn start(period_ns: u64) -> Result<(), StartError> {
    filter::check(&CALLS).map_err(|forbidden| StartError::Filtered(forbidden.call))?;
    clock::prepare();
    handler::prepare()?;
    timers::try_one()?;
    PERIOD.store(period_ns, Ordering::SeqCst);
    let recording = RECORDING.fetch_add(1, Ordering::SeqCst) + 1;
    watch::look();
    watch::start(recording);
    Ok(())
}

/// Starts the thread that looks for threads without a timer, if it could not be started before.
pub(in super::super) fn watch() {
    watch::start(RECORDING.load(Ordering::SeqCst));
}

/// Ends the recording.
pub(in super::super) fn stop() {
    PERIOD.store(0, Ordering::SeqCst);
    RECORDING.fetch_add(1, Ordering::SeqCst);
    watch::stop();
    timers::remove_all();
}

/// Replaces the timers in the child of a fork, which inherits none, by one for its only thread.
pub(in super::super) fn after_fork_in_child() {
    RECORDING.fetch_add(1, Ordering::SeqCst);
    handler::after_fork_in_child();
    timers::after_fork_in_child();
}
