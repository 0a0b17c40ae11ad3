//! Requests to the maintenance thread, from hooks.
//!
//! A hook must not allocate or take the loader's lock. It stores its request in a flag and wakes
//! the thread, which does the work. Without the thread, the requests stay until a profile is
//! written.

use std::ptr;
use std::sync::OnceLock;

use plimsoll_sys::os::fork::{Table, join};

use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::primitives::{AtomicBool, AtomicPtr, Ordering};

use crate::fork::Order;

/// The bell for which the maintenance thread waits; null in a process without that thread. It is
/// never freed.
static BELL: AtomicPtr<Bell> = AtomicPtr::new(ptr::null_mut());

/// Whether the list of modules lacks code that a walk met.
static MODULES_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Registers the bell for which the maintenance thread waits. Returns false if one is already
/// registered.
pub fn register(bell: Bell) -> bool {
    join(&FORK);
    let bell = Box::into_raw(Box::new(bell));
    let registered =
        BELL.compare_exchange(ptr::null_mut(), bell, Ordering::Release, Ordering::Relaxed);
    if registered.is_err() {
        // SAFETY: the pointer was made above, and nothing else has it.
        drop(unsafe { Box::from_raw(bell) });
    }
    registered.is_ok()
}

static FORK: Table = Table::new(Order::Wakeup.rank(), after_fork_in_child);

/// Forgets the parent's thread in the child of a fork, which keeps the memory of the bell: one for each generation of
/// forks.
fn after_fork_in_child() {
    BELL.store(ptr::null_mut(), Ordering::Relaxed);
}

/// Returns the registered bell.
pub fn bell() -> Option<&'static Bell> {
    // SAFETY: the pointer is null, or `register` leaked its value.
    unsafe { BELL.load(Ordering::Acquire).as_ref() }
}

/// Wakes the maintenance thread. For hooks.
pub fn wake() {
    if let Some(bell) = bell() {
        bell.ring();
    }
}

/// Requests a refresh of the list of modules. For hooks.
pub fn request_modules() {
    // The store precedes the load of the bell. The thread registers the bell before it reads
    // requests, so one of the two sees the other.
    MODULES_REQUESTED.store(true, Ordering::SeqCst);
    wake();
}

/// Takes the request for a refresh of the list of modules.
pub fn take_modules_request() -> bool {
    MODULES_REQUESTED.swap(false, Ordering::SeqCst)
}

/// Work after a sampled allocation, outside of all counting, in a process without a maintenance
/// thread.
static AFTER_SAMPLE: OnceLock<fn()> = OnceLock::new();

/// Registers the function that [`after_sample`] calls.
pub fn call_after_samples(work: fn()) {
    let _ = AFTER_SAMPLE.set(work);
}

/// Work before the program returns a large piece of memory, in a process without a maintenance
/// thread.
static BEFORE_RELEASE: OnceLock<fn()> = OnceLock::new();

/// The size in bytes from which a release is large.
const LARGE_RELEASE: usize = 1 << 20;

/// Registers the function that [`before_release`] calls.
pub fn call_before_releases(work: fn()) {
    let _ = BEFORE_RELEASE.set(work);
}

/// Calls the registered function before so many bytes are freed or unmapped, unless a signal handler
/// interrupted Plimsoll on this thread. For cold paths, outside of all counting.
#[inline]
pub fn before_release(bytes: usize) {
    if bytes >= LARGE_RELEASE {
        before_large_release();
    }
}

#[cold]
#[inline(never)]
fn before_large_release() {
    let Some(work) = BEFORE_RELEASE.get() else {
        return;
    };
    let counting = crate::deferred_signals::Counting::begin();
    if counting.is_outermost() {
        work();
    }
}

/// Calls the registered function. For the cold path of an allocation.
pub fn after_sample() {
    if let Some(work) = AFTER_SAMPLE.get() {
        work();
    }
}
