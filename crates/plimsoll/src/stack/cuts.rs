//! When what is counted becomes part of a reading.
//!
//! Whoever counts is inside a generation while he does, and adds to one slot of a bucket: that of
//! the generation, or of the cycle of the heap profile. The reader turns the generation and waits
//! until nobody is inside the old one; then nobody writes to the slots that he is about to fold.

use super::heap_cycle::{CycleNumber, HeapCycle, Stream};
use crate::ledger::{Gate, Generation};
use crate::primitives::{AtomicUsize, Ordering};

/// See the module documentation.
pub(super) struct Cuts {
    gate: Gate,
    generation: AtomicUsize,
    pub(super) heap: HeapCycle,
}

/// The slots to which nobody writes any more: of buckets of the heap profile, and of others.
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

    /// Counts something in a bucket that is not of the heap profile: `add` gets the slot.
    pub(super) fn count(&self, add: impl FnOnce(usize)) {
        let generation = self.gate.enter(|| self.current());
        add(generation.index());
        self.gate.leave(generation);
    }

    /// The same in one that is. Returns the cycle that it was counted in.
    pub(super) fn count_heap(&self, stream: Stream, add: impl FnOnce(usize)) -> CycleNumber {
        let generation = self.gate.enter(|| self.current());
        // What advanced the cycle before the generation was turned is seen by who is in the new
        // one; and a slot is not used anew before nobody is in the old one.
        let state = self.heap.state();
        add(state.slot(stream));
        self.gate.leave(generation);
        state.cycle()
    }

    /// A cut for kinds other than the heap profile. For one reader at a time, as are the next two.
    pub(super) fn cut(&self, mut fold: impl FnMut(Complete)) {
        self.turn(&[], &mut fold);
    }

    /// Folds what the heap profile is to show.
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

    /// Folds what mark terminations and ends of cycles have made ready.
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

    /// The same for who must not wait, because he may have stopped a thread in the middle of
    /// counting something. Folds nothing where somebody is.
    pub(super) fn try_to_fold_published(&self, mut fold: impl FnMut(&'static [usize])) {
        loop {
            let state = self.heap.state();
            // Whoever is not inside now sees this state, or a later one.
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

    /// In the child of a fork: forgets those inside who are not there any more.
    #[cfg(not(loom))]
    pub(super) fn after_fork_in_child(&self) {
        self.gate.reset();
    }

    fn current(&self) -> Generation {
        Generation::of_index(self.generation.load(Ordering::Acquire))
    }
}
