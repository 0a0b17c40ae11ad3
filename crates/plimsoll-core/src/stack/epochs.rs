//! Decides when counts become part of a reading.
//!
//! A counting thread is inside a generation. It adds to one slot of a bucket, which belongs to the
//! generation or to the cycle of the heap profile. The reader switches the generation and waits
//! until no thread is inside the old one. Then no thread writes to the slots that it is about to
//! fold.

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::heap_cycle::{CycleNumber, HeapCycle, Stream};
use plimsoll_ledger::ledger::{Gate, Generation};

/// The generations and the cycle. See the module documentation.
pub(super) struct Cuts {
    gate: Gate,
    generation: AtomicUsize,
    pub(super) heap: HeapCycle,
}

/// The slots to which no thread writes any more: those of the heap profile's buckets, and of
/// others.
#[derive(Clone, Copy)]
pub(super) struct Complete {
    pub(super) heap: &'static [usize],
    pub(super) others: usize,
}

impl Cuts {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            gate: Gate::new(),
            generation: AtomicUsize::new(0),
            heap: HeapCycle::new(),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            gate: Gate::new(),
            generation: AtomicUsize::new(0),
            heap: HeapCycle::new(),
        }
    }

    /// Counts an event in a bucket outside the heap profile. `add` receives the slot.
    pub(super) fn count(&self, add: impl FnOnce(usize)) {
        let generation = self.gate.enter(|| self.current());
        add(generation.index());
        self.gate.leave(generation);
    }

    /// Counts an event in a bucket of the heap profile. Returns the cycle in which it was counted.
    pub(super) fn count_heap(&self, stream: Stream, add: impl FnOnce(usize)) -> CycleNumber {
        let generation = self.gate.enter(|| self.current());
        // A thread in the new generation sees any advance of the cycle that preceded the switch. A
        // slot is not reused while any thread is in the old generation.
        let state = self.heap.state();
        add(state.slot(stream));
        self.gate.leave(generation);
        state.cycle()
    }

    /// Makes a cut for kinds other than the heap profile. For one reader at a time, like the next
    /// two.
    pub(super) fn cut(&self, mut fold: impl FnMut(Complete)) {
        self.turn(&[], &mut fold);
    }

    /// Folds the counts that the heap profile shows.
    pub(super) fn publish_heap(&self, mut fold: impl FnMut(Complete)) {
        loop {
            let state = self.heap.state();
            if state.is_pending() {
                self.fold_published(&mut fold);
            } else if state.is_deferred() {
                return;
            } else if let Some(advanced) = self.heap.advance_for_reader(state) {
                self.turn(advanced.complete(), &mut fold);
                if self.heap.folded(advanced) {
                    return;
                }
            }
        }
    }

    /// Folds the counts that mark terminations and ends of cycles have published.
    pub(super) fn fold_published(&self, mut fold: impl FnMut(Complete)) {
        loop {
            let state = self.heap.state();
            if !state.is_pending() {
                return;
            }
            self.turn(state.complete(), &mut fold);
            if self.heap.folded(state) {
                return;
            }
        }
    }

    /// Does the same without waiting, for callers that may have stopped a thread while it counts.
    /// Folds nothing while a thread is counting.
    pub(super) fn try_to_fold_published(&self, mut fold: impl FnMut(&'static [usize])) {
        loop {
            let state = self.heap.state();
            // A thread that enters after this check sees this state, or a later one.
            if !state.is_pending() || !self.gate.is_quiet() {
                return;
            }
            fold(state.complete());
            if self.heap.folded(state) {
                return;
            }
        }
    }

    fn turn(&self, heap: &'static [usize], fold: &mut impl FnMut(Complete)) {
        let frozen = self.current();
        self.generation
            .store(frozen.other().index(), Ordering::SeqCst);
        self.gate.settle(frozen);
        fold(Complete {
            heap,
            others: frozen.index(),
        });
    }

    /// Forgets the threads inside; see [`Gate::reset`].
    #[cfg(not(loom))]
    pub(super) fn discard_writers(&self) {
        self.gate.reset();
    }

    fn current(&self) -> Generation {
        Generation::of_index(self.generation.load(Ordering::Acquire))
    }
}
