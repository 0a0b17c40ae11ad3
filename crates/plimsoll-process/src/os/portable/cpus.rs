//! The number of processors that the process may use.

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

/// The number of processors that the process could use at once at the last update.
static AVAILABLE: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of processors that the process may use at once; at least 1.
#[inline]
pub fn available() -> usize {
    AVAILABLE.load(Ordering::Relaxed).max(1)
}

/// Updates [`available`]. Not for use in hooks.
pub fn look() {
    let found = std::thread::available_parallelism().map_or(1, |found| found.get());
    AVAILABLE.store(found, Ordering::Relaxed);
}

/// Returns the number of processors that the process may use, if the system reports it. Not for
/// use in hooks.
pub fn possible() -> Option<usize> {
    let found = std::thread::available_parallelism().ok()?;
    Some(found.get())
}
