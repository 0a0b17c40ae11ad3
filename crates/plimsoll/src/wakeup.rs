//! Requests to the maintenance thread, from hooks.
//!
//! A hook must not allocate or take the loader's lock. It stores its request in a flag and wakes
//! the thread, which does the work. Without the thread, the requests stay until a profile is
//! written.

use std::sync::OnceLock;

use plimsoll_sys::os::eventfd::Bell;
use plimsoll_sys::primitives::{AtomicBool, Ordering};

static BELL: OnceLock<Bell> = OnceLock::new();

/// Whether the list of modules lacks code that a walk met.
static MODULES_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Registers the descriptor on which the maintenance thread waits. Returns false if one is already
/// registered.
pub(crate) fn register(bell: Bell) -> bool {
    BELL.set(bell).is_ok()
}

/// Returns the registered descriptor.
pub(crate) fn bell() -> Option<&'static Bell> {
    BELL.get()
}

/// Wakes the maintenance thread. For hooks.
pub(crate) fn wake() {
    if let Some(bell) = BELL.get() {
        bell.ring();
    }
}

/// Requests a refresh of the list of modules. For hooks.
pub(crate) fn request_modules() {
    // The store precedes the load of the bell. The thread registers the bell before it reads
    // requests, so one of the two sees the other.
    MODULES_REQUESTED.store(true, Ordering::SeqCst);
    wake();
}

/// Takes the request for a refresh of the list of modules.
pub(crate) fn take_modules_request() -> bool {
    MODULES_REQUESTED.swap(false, Ordering::SeqCst)
}

/// Work after a sampled allocation, outside of all counting, in a process without a maintenance
/// thread.
#[cfg(feature = "preload")]
static AFTER_SAMPLE: OnceLock<fn()> = OnceLock::new();

/// Registers the function that [`after_sample`] calls.
#[cfg(feature = "preload")]
pub(crate) fn call_after_samples(work: fn()) {
    let _ = AFTER_SAMPLE.set(work);
}

/// Calls the registered function. For the cold path of an allocation.
#[cfg(feature = "preload")]
pub(crate) fn after_sample() {
    if let Some(work) = AFTER_SAMPLE.get() {
        work();
    }
}
