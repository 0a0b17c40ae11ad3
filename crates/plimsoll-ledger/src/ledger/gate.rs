//! A count of the writers inside a generation, for writers that share one set of words.

use plimsoll_sys::primitives::{AtomicU32, Backoff, Ordering, fence};

use super::Generation;

/// Writers [`enter`](Gate::enter) the current generation and [`leave`](Gate::leave) it; the reader
/// turns the generation and then waits in [`settle`](Gate::settle) until the old one is empty.
///
/// The writer counts itself in, fences, and checks again that the generation is current. The reader
/// turns the generation, fences, and reads the count. So either the writer sees the turn and moves
/// to the new generation, or the reader sees the writer and waits. New writers never enter the old
/// generation, so the wait ends.
///
/// Threads count themselves in at different places, to avoid contention for cache lines; the reader
/// checks all places.
pub struct Gate {
    places: [Stripe; PLACES],
}

/// The number of writers inside each generation, among the threads that share this place.
#[repr(align(64))]
struct Stripe {
    inside: [AtomicU32; 2],
}

/// A power of two. The models use one place, as any two threads may share one.
const PLACES: usize = if cfg!(loom) { 1 } else { 16 };

impl Gate {
    /// Returns an open gate.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            places: [const {
                Stripe {
                    inside: [AtomicU32::new(0), AtomicU32::new(0)],
                }
            }; PLACES],
        }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            places: [Stripe {
                inside: [AtomicU32::new(0), AtomicU32::new(0)],
            }],
        }
    }

    /// Returns the place at which the calling thread counts itself.
    fn place(&self) -> &Stripe {
        #[cfg(not(loom))]
        return &self.places[plimsoll_sys::os::thread_place(PLACES)];
        #[cfg(loom)]
        &self.places[0]
    }

    /// Counts the caller into the generation that `current` yields, and returns it.
    pub fn enter(&self, current: impl Fn() -> Generation) -> Generation {
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

    /// Counts the caller out again, on the same thread. Release: a reader that finds the gate empty
    /// sees everything that was written inside.
    pub fn leave(&self, generation: Generation) {
        // The count is 0 if it was reset while this thread was inside.
        let inside = &self.place().inside[generation.index()];
        let _ = inside.fetch_update(Ordering::Release, Ordering::Relaxed, |count| {
            count.checked_sub(1)
        });
    }

    /// Waits until no writer is inside `generation`, which must no longer be the current one.
    pub fn settle(&self, generation: Generation) {
        fence(Ordering::SeqCst);
        let mut backoff = Backoff::new();
        for place in &self.places {
            while place.inside[generation.index()].load(Ordering::Acquire) != 0 {
                backoff.wait();
            }
        }
    }

    /// Returns whether all writers that were inside at the call have left: then every other thread
    /// sees the caller's earlier changes. Reads once and does not wait; returns false if a writer
    /// is inside now.
    pub fn is_quiet(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut inside = self.places.iter().flat_map(|place| &place.inside);
        inside.all(|inside| inside.load(Ordering::Acquire) == 0)
    }

    /// Discards all writers: in the child of a fork, where the other threads no longer exist, and in a signal handler
    /// that interrupted this thread inside and ends the process. A reader does not wait for discarded writers, and may
    /// see parts of their events.
    #[cfg(not(loom))]
    pub fn reset(&self) {
        for inside in self.places.iter().flat_map(|place| &place.inside) {
            // A read does not copy an untouched page.
            if inside.load(Ordering::Relaxed) != 0 {
                inside.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_writer_that_was_discarded_leaves_the_gate_empty() {
        let gate = Gate::new();
        let current = || Generation::of_index(0);
        let discarded = gate.enter(current);
        assert!(!gate.is_quiet());
        gate.reset();
        assert!(gate.is_quiet());
        let next = gate.enter(current);
        assert!(!gate.is_quiet());
        gate.leave(next);
        gate.leave(discarded);
        assert!(gate.is_quiet());
        gate.settle(discarded);
    }

    #[test]
    fn a_reader_waits_for_the_writer_inside() {
        let gate = Gate::new();
        let generation = gate.enter(|| Generation::of_index(1));
        let (is_reading, has_left) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                is_reading.store(true, Ordering::SeqCst);
                gate.settle(generation);
                assert!(has_left.load(Ordering::SeqCst));
            });
            while !is_reading.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            // Time in which a reader that does not wait would fail.
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            has_left.store(true, Ordering::SeqCst);
            gate.leave(generation);
        });
    }
}
