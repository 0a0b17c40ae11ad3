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

use crate::primitives::{AtomicBool, Mutex, Ordering};
use crate::symbol::SearchedObjects;

/// What has been done.
pub(crate) struct Progress {
    /// Waits and wakes are reported.
    started: bool,
    /// The objects whose symbol tables were searched; `None` until the first is.
    searched: Option<SearchedObjects>,
    /// What there is no symbol table for was found out otherwise, as far as that can be.
    learned: bool,
}

static PROGRESS: Mutex<Progress> = Mutex::new(Progress {
    started: false,
    searched: None,
    learned: false,
});

/// Whether [`find_sites`] has run.
static SITES_FOUND: AtomicBool = AtomicBool::new(false);

/// Whether [`want_sites`] was called.
static SITES_WANTED: AtomicBool = AtomicBool::new(false);

/// Keeps [`start`], [`find_sites`], [`learn`] and [`refresh`] out until the guard is dropped: for a fork.
pub(crate) fn lock() -> MutexGuard<'static, Progress> {
    PROGRESS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has waits and wakes reported from now on. Not for hooks.
pub(crate) fn start() {
    let mut progress = lock();
    if !std::mem::replace(&mut progress.started, true) {
        plimsoll_interpose::set_hook(futex::called);
        plimsoll_interpose::set_mode(plimsoll_interpose::Mode::All);
        #[cfg(feature = "pthread")]
        pthread::start();
    }
}

/// Finds out where in the code threads wait, once. This reads symbol tables, which takes longer than
/// many programs run: it is put off until something is recorded, or a wait is timed. Not for hooks.
pub(crate) fn find_sites() {
    let mut progress = lock();
    if progress.searched.is_none() {
        sites::refresh(progress.searched.get_or_insert_default());
        SITES_FOUND.store(true, Ordering::Release);
    }
}

/// Has the maintenance thread call [`find_sites`]; returns whether that is done already. For hooks.
fn want_sites() -> bool {
    let found = SITES_FOUND.load(Ordering::Acquire);
    if !found && !SITES_WANTED.swap(true, Ordering::Relaxed) {
        crate::keeper::call_to_find_sites();
    }
    found
}

/// Calls [`find_sites`] if a hook has asked for that. Not for hooks.
pub(crate) fn find_sites_if_wanted() {
    if SITES_WANTED.load(Ordering::Relaxed) && !SITES_FOUND.load(Ordering::Relaxed) {
        find_sites();
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
    let mut progress = lock();
    if let Some(searched) = &mut progress.searched {
        sites::refresh(searched);
    }
}
