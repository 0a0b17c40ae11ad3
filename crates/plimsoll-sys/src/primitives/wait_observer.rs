//! Reports waits for Plimsoll's locks to an observer of a higher layer.
//!
//! A program's thread may wait for such a lock on any path into the library. The observer records
//! the wait separately from the program's waits. Before registration, no wait is recorded.

use std::sync::OnceLock;

/// A function that calls `wait` exactly once, and records it.
pub type Observer = fn(wait: &mut dyn FnMut());

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Registers the observer of all later waits. A second call has no effect.
#[inline]
pub fn observe_waits(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Calls `wait` once, through the observer if one is registered. Does not allocate.
#[inline]
pub fn observed(wait: &mut dyn FnMut()) {
    match OBSERVER.get() {
        Some(observer) => observer(wait),
        None => wait(),
    }
}
