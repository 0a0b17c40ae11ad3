//! Doors for events of code that nobody changed: functions of the C library that a program's calls
//! are taken over from.

mod calibrate;
mod futex;
mod parking_lot;
mod sites;

use std::sync::MutexGuard;

use crate::contention;
use crate::primitives::Mutex;

/// Held while the mode is changed or functions are looked for; whether the hook is set.
static IS_SET: Mutex<bool> = Mutex::new(false);

/// Keeps [`follow_rates`] and [`refresh`] out until the guard is dropped: for a fork.
pub(crate) fn lock() -> MutexGuard<'static, bool> {
    IS_SET
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has waits reported if there is a rate at which they are recorded, and not otherwise. Reads
/// symbol tables, so: not for hooks.
pub(crate) fn follow_rates() {
    let mut is_set = lock();
    if !contention::is_on() {
        return plimsoll_interpose::set_mode(plimsoll_interpose::Mode::Off);
    }
    if !*is_set {
        sites::refresh();
        plimsoll_interpose::set_hook(futex::called);
        *is_set = true;
        plimsoll_interpose::set_mode(plimsoll_interpose::Mode::All);
        if !sites::knows_locks_of_std() && plimsoll_interpose::is_linked() {
            calibrate::calibrate();
        }
    }
    plimsoll_interpose::set_mode(plimsoll_interpose::Mode::All);
}

/// Takes notice of code that was loaded since.
pub(crate) fn refresh() {
    let is_set = lock();
    if *is_set {
        sites::refresh();
    }
}
