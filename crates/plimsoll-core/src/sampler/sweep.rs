//! Marks threads that sweep for a collector: the blocks that they free were found dead.

use std::cell::Cell;

thread_local! {
    /// The number of nested sweeps of the thread.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Marks the beginning of a sweep on this thread.
pub fn enter() {
    INSIDE.set(INSIDE.get() + 1);
}

/// Marks the end of a sweep on this thread.
pub fn leave() {
    INSIDE.set(INSIDE.get().saturating_sub(1));
}

/// Returns whether this thread is sweeping.
pub(super) fn is_inside() -> bool {
    INSIDE.get() != 0
}
