//! Doors for events of code that nobody changed: functions of the C library that a program's calls
//! are taken over from.

mod calibrate;
mod futex;
#[cfg(feature = "mmap")]
pub(crate) mod mappings;
mod parking_lot;
#[cfg(feature = "pthread")]
mod pthread;
mod sites;
pub(crate) mod threads;

use std::sync::MutexGuard;

use crate::primitives::Mutex;

/// What has been done.
pub(crate) struct Progress {
    /// Waits and wakes are reported.
    started: bool,
    /// What there is no symbol table for was found out otherwise, as far as that can be.
    learned: bool,
}

static PROGRESS: Mutex<Progress> = Mutex::new(Progress {
    started: false,
    learned: false,
});

/// Keeps [`start`], [`learn`] and [`refresh`] out until the guard is dropped: for a fork.
pub(crate) fn lock() -> MutexGuard<'static, Progress> {
    PROGRESS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has waits and wakes reported from now on. Reads symbol tables, so: not for hooks.
pub(crate) fn start() {
    let mut progress = lock();
    if !std::mem::replace(&mut progress.started, true) {
        sites::refresh();
        plimsoll_interpose::set_hook(futex::called);
        plimsoll_interpose::set_mode(plimsoll_interpose::Mode::All);
        #[cfg(feature = "pthread")]
        pthread::start();
    }
}

/// Takes notice of whether anything is recorded.
#[cfg(feature = "pthread")]
pub(crate) fn follow_rates() {
    let progress = lock();
    if progress.started {
        pthread::follow_rates();
    }
}

/// Does what [`start`] leaves undone where there is no symbol table.
pub(crate) fn learn() {
    let mut progress = lock();
    if progress.started
        && !std::mem::replace(&mut progress.learned, true)
        && !sites::knows_locks_of_std()
        && plimsoll_interpose::is_linked()
    {
        calibrate::calibrate();
    }
}

/// Takes notice of code that was loaded since.
pub(crate) fn refresh() {
    let progress = lock();
    if progress.started {
        sites::refresh();
    }
}
