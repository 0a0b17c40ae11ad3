//! Entry points for events of unmodified code: functions of the C library whose calls are
//! interposed.

mod calibrate;
pub mod filters;
mod futex;
mod parking_lot;
#[cfg(feature = "pthread")]
mod pthread;
mod sites;
pub mod threads;
pub mod vfork;

use plimsoll_symbolize::SearchedObjects;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::primitives::{AtomicBool, Ordering};

use plimsoll_core::fork::Order;
use plimsoll_core::settings;

/// The state of the hooks' set-up.
pub(crate) struct Progress {
    /// Whether waits and wake-ups are reported.
    started: bool,
    /// The objects whose symbol tables were searched; `None` before the first search.
    searched: Option<SearchedObjects>,
    /// Whether [`learn`] has finished.
    learned: bool,
}

static PROGRESS: ForkLock<Progress> = ForkLock::new(
    Order::Hooks.rank(),
    Progress {
        started: false,
        searched: None,
        learned: false,
    },
);

/// Whether [`find_sites`] has run.
static SITES_FOUND: AtomicBool = AtomicBool::new(false);

/// Whether [`want_sites`] was called.
static SITES_WANTED: AtomicBool = AtomicBool::new(false);

/// Blocks [`start`], [`find_sites`], [`learn`] and [`refresh`] until the guard is dropped.
fn lock() -> ForkGuard<Progress> {
    PROGRESS.lock()
}

/// Starts to report waits and wake-ups. Not for hooks.
pub(crate) fn start() {
    let mut progress = lock();
    if !std::mem::replace(&mut progress.started, true) {
        plimsoll_interpose::set_hook(futex::called);
        plimsoll_interpose::set_mode(plimsoll_interpose::Mode::All);
        #[cfg(feature = "pthread")]
        pthread::start();
    }
}

/// Finds the functions in which threads wait, once. This reads symbol tables, which takes longer
/// than many programs run. So it is deferred until an event is recorded or a wait is timed. Not for
/// hooks.
pub(crate) fn find_sites() {
    let mut progress = lock();
    if progress.searched.is_none() {
        // The preloaded library has no waits of the program.
        let own = settings::IS_PRELOADED.then_some(find_sites as *const () as usize);
        let none = || own.map(SearchedObjects::without).unwrap_or_default();
        sites::refresh(progress.searched.get_or_insert_with(none));
        SITES_FOUND.store(true, Ordering::Release);
    }
}

/// Makes the maintenance thread call [`find_sites`]; returns whether that is done already. For
/// hooks.
fn want_sites() -> bool {
    let found = SITES_FOUND.load(Ordering::Acquire);
    if !found && !SITES_WANTED.swap(true, Ordering::Relaxed) {
        plimsoll_core::wakeup::wake();
    }
    found
}

/// Calls [`find_sites`] if a hook requested it. Not for hooks.
pub(crate) fn find_sites_if_wanted() {
    if SITES_WANTED.load(Ordering::Relaxed) && !SITES_FOUND.load(Ordering::Relaxed) {
        find_sites();
    }
}

/// Adapts the hooks to whether events are recorded.
#[cfg(feature = "pthread")]
pub(crate) fn follow_rates() {
    let progress = lock();
    if progress.started {
        pthread::follow_rates();
    }
}

/// Finds the places of waits by a test if no symbol table shows them. Once. The preloaded library does
/// not: it would find its own, by threads that the program pays for.
pub(crate) fn learn() {
    let mut progress = lock();
    if !settings::IS_PRELOADED
        && progress.started
        && !std::mem::replace(&mut progress.learned, true)
        && !sites::knows_locks_of_std()
        && plimsoll_interpose::is_linked()
    {
        calibrate::calibrate();
    }
}

/// Searches objects that were loaded since the last search.
pub fn refresh() {
    let mut progress = lock();
    if let Some(searched) = &mut progress.searched {
        sites::refresh(searched);
    }
}
