//! A count of who is inside a generation, for writers that share one set of words.

use super::Generation;
use crate::primitives::{AtomicU32, Backoff, Ordering, fence};

/// Writers [`enter`](Gate::enter) the current generation and [`leave`](Gate::leave) it; the reader
/// turns the generation and then waits in [`settle`](Gate::settle) until the old one is empty.
///
/// The writer counts itself in, fences, and looks again whether the generation still stands; the
/// reader turns it, fences, and looks at the count. So either the writer sees the turn and goes to
/// the new generation, or the reader sees the writer and waits. New writers never enter the old
/// generation, so the wait ends.
pub(crate) struct Gate {
    inside: [AtomicU32; 2],
}

impl Gate {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            inside: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            inside: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    /// Counts the caller into the generation that `current` yields, and returns it.
    pub(crate) fn enter(&self, current: impl Fn() -> Generation) -> Generation {
        loop {
            let generation = current();
            self.inside[generation.index()].fetch_add(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if current() == generation {
                return generation;
            }
            self.leave(generation);
        }
    }

    /// Counts the caller out again. Release: what was written inside is seen by who finds the gate
    /// empty.
    pub(crate) fn leave(&self, generation: Generation) {
        self.inside[generation.index()].fetch_sub(1, Ordering::Release);
    }

    /// Waits until nobody is inside `generation`, which must no longer be the current one.
    pub(crate) fn settle(&self, generation: Generation) {
        fence(Ordering::SeqCst);
        let mut backoff = Backoff::new();
        while self.inside[generation.index()].load(Ordering::Acquire) != 0 {
            backoff.wait();
        }
    }

    /// Forgets everybody: in the child of a fork, where the others no longer exist.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        for inside in &self.inside {
            inside.store(0, Ordering::Relaxed);
        }
    }
}
