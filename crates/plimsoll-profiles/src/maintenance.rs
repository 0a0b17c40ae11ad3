//! The maintenance thread: background work that hooks must not do.
//!
//! It starts the reports of waits and folds the heap profile for a collector's next cycle. It
//! refreshes the list of modules when a capture met unknown code. Hooks wake it by [`wakeup`].

use std::ptr;
use std::time::Duration;

use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::filter;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::os::signals::BlockedSignals;

use plimsoll_core::fork::Order;
use plimsoll_core::internal_thread::MustEnd;
use plimsoll_core::{internal_scope, internal_thread, overhead, stack, wakeup};
use plimsoll_threads::thread;

/// Starts the thread, once. It lives as long as the process, and sleeps until it is woken. Without
/// it, the list of modules is refreshed when a profile is written.
pub fn start() {
    let _own = internal_scope::scope();
    let Ok(bell) = Bell::new() else { return };
    if wakeup::register(bell) {
        // A failure leaves the process without the thread, as described above.
        let _ = internal_thread::spawn(c"plimsoll-maint", run);
    }
}

/// A check that the thread makes periodically while it is due.
pub struct PeriodicCheck {
    /// Returns the time to the next check; `None` if none is due.
    pub period: fn() -> Option<Duration>,
    /// Makes the check. It may be called earlier than it is due.
    pub check: fn(),
}

static PERIODIC_CHECKS: ForkLock<Vec<&'static PeriodicCheck>> =
    ForkLock::new(Order::PeriodicChecks.rank(), Vec::new());

/// Registers a check, once. The thread notices it at once.
pub fn check_periodically(check: &'static PeriodicCheck) {
    let _own = internal_scope::scope();
    let mut checks = PERIODIC_CHECKS.lock();
    if !checks.iter().any(|known| ptr::eq(*known, check)) {
        checks.push(check);
    }
    drop(checks);
    if let Some(bell) = wakeup::bell() {
        bell.ring();
    }
}

/// Returns the registered checks. The lock is free when they run.
fn periodic_checks() -> impl Iterator<Item = &'static PeriodicCheck> {
    (0..).map_while(|at| PERIODIC_CHECKS.lock().get(at).copied())
}

fn run() {
    let Some(bell) = wakeup::bell() else { return };
    #[cfg(feature = "interpose")]
    crate::hook::start();
    loop {
        // Also before the first wait: a request that preceded the bell's registration did not ring
        // it.
        work();
        if wait(bell).is_err() {
            return;
        }
    }
}

fn wait(bell: &Bell) -> Result<(), MustEnd> {
    let due = periodic_checks().filter_map(|check| (check.period)());
    let due = due.chain(filter::is_restricted().then_some(LAST_THREAD_AFTER));
    match due.min() {
        Some(time) => {
            internal_thread::wait(bell, Some(time))?;
            end_without_program();
            periodic_checks()
                .filter(|check| (check.period)().is_some())
                .for_each(|check| (check.check)());
            Ok(())
        }
        None => internal_thread::wait(bell, None),
    }
}

/// The interval at which a process with a system call filter is checked for threads of the program.
const LAST_THREAD_AFTER: Duration = Duration::from_millis(200);

/// Ends the process if no thread of the program is left, because a filter has ended each of them. Plimsoll's threads would
/// keep the process, and no thread of it would receive a signal.
fn end_without_program() {
    if filter::is_restricted() && !thread::is_any_left() {
        thread::end_as_first();
    }
}

fn work() {
    let _time = overhead::measure();
    stack::TABLE.fold_if_pending();
    refresh_if_requested();
    #[cfg(feature = "interpose")]
    crate::hook::find_sites_if_wanted();
}

/// Refreshes the list of modules if a hook requested that. Not for hooks: takes the loader's lock
/// and allocates.
pub fn refresh_if_requested() {
    if wakeup::take_modules_request() {
        let _blocked = BlockedSignals::new();
        let _own = internal_scope::scope();
        stack::refresh_modules();
    }
}
