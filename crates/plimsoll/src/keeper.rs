//! The thread that does what takes a while. It has waits reported; it brings the list of modules up
//! to date when a capture met code which that does not know: a hook must not, since that takes the
//! loader's lock and allocates; and it makes the heap profile ready for a collector's next cycle.

use std::sync::OnceLock;

use crate::os::bell::Bell;
use crate::primitives::{AtomicBool, Ordering};
use crate::{own, own_thread, own_time, postmortem, stack};

static BELL: OnceLock<Bell> = OnceLock::new();

/// Starts the thread, once; it lives as long as the process, and sleeps. Without it, the list is
/// brought up to date when a profile is written.
pub(crate) fn start() {
    let _own = own::scope();
    let Ok(bell) = Bell::new() else { return };
    if BELL.set(bell).is_ok() {
        // If there is no thread to be had, it is as said above.
        let _ = own_thread::spawn(c"plimsoll-keeper", keep);
    }
}

/// Whether somebody wants the list of modules to be brought up to date.
static MODULES_WANTED: AtomicBool = AtomicBool::new(false);

/// Asks the thread to look for new modules. For hooks.
pub(crate) fn call() {
    // Before it is looked whether there is a bell: `keep` does it the other way round.
    MODULES_WANTED.store(true, Ordering::SeqCst);
    ring();
}

/// Looks for new modules, if somebody wants that. Not for hooks, but for one that knows that nobody
/// else has the loader's lock.
#[cfg(feature = "preload")]
pub(crate) fn look_if_wanted() {
    if MODULES_WANTED.swap(false, Ordering::Relaxed) {
        let _own = own::scope();
        look();
    }
}

/// Asks it to find out where threads wait. For hooks.
#[cfg(feature = "interpose")]
pub(crate) fn call_to_find_sites() {
    ring();
}

/// Asks it to make the heap profile ready for the next cycle. For guards of collectors.
pub(crate) fn call_to_fold() {
    ring();
}

/// Asks it to see to the end of the program. For destructors of threads.
#[cfg(feature = "preload")]
pub(crate) fn call_to_end() {
    ring();
}

fn ring() {
    if let Some(bell) = BELL.get() {
        bell.ring();
    }
}

fn keep() {
    let Some(bell) = BELL.get() else { return };
    #[cfg(feature = "interpose")]
    crate::hook::start();
    loop {
        // Before the first wait too: a call that came before there was a bell rang none.
        work();
        #[cfg(feature = "preload")]
        match crate::preload::last_thread_after() {
            Some(time) => {
                bell.wait_at_most(time);
                crate::preload::end_if_no_thread_is_left();
            }
            None => bell.wait(None),
        }
        #[cfg(not(feature = "preload"))]
        bell.wait(None);
    }
}

fn work() {
    let _time = own_time::measure();
    stack::TABLE.fold_if_pending();
    if MODULES_WANTED.swap(false, Ordering::SeqCst) {
        look();
    }
    #[cfg(feature = "interpose")]
    crate::hook::find_sites_if_wanted();
}

/// Takes notice of what the loader has loaded or unloaded. Not for hooks.
pub(crate) fn look() {
    if stack::refresh_modules() {
        postmortem::note_modules();
        #[cfg(feature = "interpose")]
        crate::hook::refresh();
    }
}
