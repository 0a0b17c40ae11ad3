//! Replaces the module on systems on which functions of the C library are not interposed.

use std::sync::MutexGuard;

use plimsoll_sys::primitives::Mutex;

/// The state of the hooks' set-up, of which there is none.
pub(crate) struct Progress(());

static PROGRESS: Mutex<Progress> = Mutex::new(Progress(()));

pub(crate) mod filters {
    pub(crate) fn start() {}
}

pub(crate) mod threads {
    pub(crate) fn start() {}
}

pub(crate) fn lock() -> MutexGuard<'static, Progress> {
    PROGRESS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn start() {}

pub(crate) fn find_sites() {}

pub(crate) fn find_sites_if_wanted() {}

#[cfg(feature = "pthread")]
pub(crate) fn follow_rates() {}

pub(crate) fn learn() {}

pub(crate) fn refresh() {}
