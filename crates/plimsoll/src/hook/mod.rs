//! Doors for events of code that nobody changed: functions of the C library that a program's calls
//! are taken over from.

mod futex;
mod parking_lot;
mod sites;

use crate::contention;
use crate::primitives::Mutex;

/// Has waits reported if there is a rate at which they are recorded, and not otherwise. Reads
/// symbol tables, so: not for hooks.
pub(crate) fn follow_rates() {
    /// Held while the mode is changed; whether the hook is set.
    static SET: Mutex<bool> = Mutex::new(false);
    let mut set = SET.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !contention::is_on() {
        return plimsoll_interpose::set_mode(plimsoll_interpose::Mode::Off);
    }
    if !*set {
        sites::refresh();
        plimsoll_interpose::set_hook(futex::called);
        *set = true;
    }
    plimsoll_interpose::set_mode(plimsoll_interpose::Mode::All);
}

/// Takes notice of code that was loaded since.
pub(crate) fn refresh() {
    if contention::is_on() {
        sites::refresh();
    }
}
