//! The maintenance thread: background work that hooks must not do.
//!
//! It starts the reports of waits and folds the heap profile for a collector's next cycle. It
//! refreshes the list of modules when a capture met unknown code. Hooks wake it by [`wakeup`].

#[cfg(feature = "preload")]
use std::sync::OnceLock;
#[cfg(feature = "preload")]
use std::time::Duration;

use plimsoll_sys::os::eventfd::Bell;

use crate::{internal_scope, internal_thread, overhead, stack, wakeup};

/// Starts the thread, once. It lives as long as the process, and sleeps until it is woken. Without
/// it, the list of modules is refreshed when a profile is written.
pub(crate) fn start() {
    let _own = internal_scope::scope();
    let Ok(bell) = Bell::new() else { return };
    if wakeup::register(bell) {
        // A failure leaves the process without the thread, as described above.
        let _ = internal_thread::spawn(c"plimsoll-maint", run);
    }
}

/// A check that the thread makes periodically while it is due.
#[cfg(feature = "preload")]
pub(crate) struct PeriodicCheck {
    /// Returns the time to the next check; `None` if none is due.
    pub(crate) period: fn() -> Option<Duration>,
    /// Makes the check.
    pub(crate) check: fn(),
}

#[cfg(feature = "preload")]
static PERIODIC_CHECK: OnceLock<PeriodicCheck> = OnceLock::new();

/// Registers a check. A later call has no effect.
#[cfg(feature = "preload")]
pub(crate) fn check_periodically(check: PeriodicCheck) {
    let _ = PERIODIC_CHECK.set(check);
}

fn run() {
    let Some(bell) = wakeup::bell() else { return };
    #[cfg(feature = "interpose")]
    crate::hook::start();
    loop {
        // Also before the first wait: a request that preceded the bell's registration did not ring
        // it.
        work();
        wait(bell);
    }
}

#[cfg(not(feature = "preload"))]
fn wait(bell: &Bell) {
    bell.wait();
}

#[cfg(feature = "preload")]
fn wait(bell: &Bell) {
    let due = PERIODIC_CHECK
        .get()
        .and_then(|periodic| Some(((periodic.period)()?, periodic.check)));
    match due {
        Some((period, check)) => {
            bell.wait_at_most(period);
            check();
        }
        None => bell.wait(),
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
pub(crate) fn refresh_if_requested() {
    if wakeup::take_modules_request() {
        let _own = internal_scope::scope();
        stack::refresh_modules();
    }
}
