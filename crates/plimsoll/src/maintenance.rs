//! The maintenance thread: background work that hooks must not do.
//!
//! It starts the reports of waits and folds the heap profile for a collector's next cycle. It
//! refreshes the list of modules when a capture met unknown code. Hooks wake it by [`wakeup`].

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use plimsoll_sys::os::eventfd::Bell;
use plimsoll_sys::os::filter;
use plimsoll_sys::os::signals::BlockedSignals;

use crate::internal_thread::MustEnd;
use crate::{internal_scope, internal_thread, overhead, stack, thread, wakeup};

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
pub(crate) struct PeriodicCheck {
    /// Returns the time to the next check; `None` if none is due.
    period: fn() -> Option<Duration>,
    /// Makes the check. It may be called earlier than it is due.
    check: fn(),
    /// The check that was registered before. Null until this one is registered, and itself at the end of the list.
    next: AtomicPtr<PeriodicCheck>,
}

impl PeriodicCheck {
    pub(crate) const fn new(period: fn() -> Option<Duration>, check: fn()) -> Self {
        Self {
            period,
            check,
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// A list of checks, linked by [`PeriodicCheck::next`]. Checks stay in it.
struct Checks(AtomicPtr<PeriodicCheck>);

static PERIODIC_CHECKS: Checks = Checks(AtomicPtr::new(ptr::null_mut()));

impl Checks {
    /// Adds a check, unless it is in a list.
    fn add(&self, check: &'static PeriodicCheck) {
        let new = ptr::from_ref(check).cast_mut();
        // The end of a list, for the time until the check has its place.
        let is_new =
            check
                .next
                .compare_exchange(ptr::null_mut(), new, Ordering::Relaxed, Ordering::Relaxed);
        if is_new.is_err() {
            return;
        }
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, |first| {
                let next = if first.is_null() { new } else { first };
                check.next.store(next, Ordering::Relaxed);
                Some(new)
            });
    }

    fn iter(&self) -> impl Iterator<Item = &'static PeriodicCheck> + use<> {
        let mut next = self.0.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: the list has pointers to statics only.
            let check = unsafe { next.as_ref::<'static>() }?;
            let following = check.next.load(Ordering::Relaxed);
            next = if following == next {
                ptr::null_mut()
            } else {
                following
            };
            Some(check)
        })
    }
}

/// Registers a check, once. The thread notices it at once.
pub(crate) fn check_periodically(check: &'static PeriodicCheck) {
    PERIODIC_CHECKS.add(check);
    if let Some(bell) = wakeup::bell() {
        bell.ring();
    }
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
    let due = PERIODIC_CHECKS.iter().filter_map(|check| (check.period)());
    let due = due.chain(filter::is_restricted().then_some(LAST_THREAD_AFTER));
    match due.min() {
        Some(time) => {
            internal_thread::wait(bell, Some(time))?;
            end_without_program();
            for check in PERIODIC_CHECKS
                .iter()
                .filter(|check| (check.period)().is_some())
            {
                (check.check)();
            }
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
pub(crate) fn refresh_if_requested() {
    if wakeup::take_modules_request() {
        let _blocked = BlockedSignals::new();
        let _own = internal_scope::scope();
        stack::refresh_modules();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_checks_is_registered_once_each() {
        static CHECKS: [PeriodicCheck; 20] = [const { PeriodicCheck::new(|| None, || ()) }; 20];
        let list = Checks(AtomicPtr::new(ptr::null_mut()));
        for _ in 0..2 {
            CHECKS.iter().for_each(|check| list.add(check));
        }
        let addresses = |check| ptr::from_ref::<PeriodicCheck>(check);
        let registered: Vec<_> = list.iter().map(addresses).collect();
        let all: Vec<_> = CHECKS.iter().rev().map(addresses).collect();
        assert_eq!(registered, all);
    }
}
