//! Whether the calling thread is sweeping for a collector: then what it frees was found dead.

use std::cell::Cell;

thread_local! {
    /// How many sweeps the thread is inside.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// The thread begins to sweep.
pub(crate) fn enter() {
    INSIDE.set(INSIDE.get() + 1);
}

/// It ends that.
pub(crate) fn leave() {
    INSIDE.set(INSIDE.get().saturating_sub(1));
}

/// Whether it is sweeping.
pub(super) fn is_inside() -> bool {
    INSIDE.get() != 0
}
