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
///
/// Threads count themselves in at different places, so that they do not wait for one another's
/// cache lines: the reader looks at all of them.
pub(crate) struct Gate {
    places: [Place; PLACES],
}

/// How many are inside each generation, of the threads whose place it is.
#[repr(align(64))]
struct Place {
    inside: [AtomicU32; 2],
}

/// A power of two. The models have one, which is what any two threads may share.
const PLACES: usize = if cfg!(loom) { 1 } else { 16 };

impl Gate {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            places: [const {
                Place {
                    inside: [AtomicU32::new(0), AtomicU32::new(0)],
                }
            }; PLACES],
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            places: [Place {
                inside: [AtomicU32::new(0), AtomicU32::new(0)],
            }],
        }
    }

    /// Where the calling thread counts itself.
    fn place(&self) -> &Place {
        #[cfg(not(loom))]
        return &self.places[crate::os::thread_place(PLACES)];
        #[cfg(loom)]
        &self.places[0]
    }

    /// Counts the caller into the generation that `current` yields, and returns it.
    pub(crate) fn enter(&self, current: impl Fn() -> Generation) -> Generation {
        let place = self.place();
        loop {
            let generation = current();
            place.inside[generation.index()].fetch_add(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if current() == generation {
                return generation;
            }
            self.leave(generation);
        }
    }

    /// Counts the caller out again, on the same thread. Release: what was written inside is seen by
    /// who finds the gate empty.
    pub(crate) fn leave(&self, generation: Generation) {
        self.place().inside[generation.index()].fetch_sub(1, Ordering::Release);
    }

    /// Waits until nobody is inside `generation`, which must no longer be the current one.
    pub(crate) fn settle(&self, generation: Generation) {
        fence(Ordering::SeqCst);
        let mut backoff = Backoff::new();
        for place in &self.places {
            while place.inside[generation.index()].load(Ordering::Acquire) != 0 {
                backoff.wait();
            }
        }
    }

    /// Whether all who were inside when this was called have left: then everybody else sees what
    /// the caller has changed before. Looks once and does not wait; false if somebody is inside
    /// now.
    pub(crate) fn is_quiet(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut inside = self.places.iter().flat_map(|place| &place.inside);
        inside.all(|inside| inside.load(Ordering::Acquire) == 0)
    }

    /// Forgets everybody: in the child of a fork, where the others no longer exist.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        for inside in self.places.iter().flat_map(|place| &place.inside) {
            inside.store(0, Ordering::Relaxed);
        }
    }
}
