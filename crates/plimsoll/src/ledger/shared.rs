//! The shard of those who have none: atomic read-modify-writes behind a [`Gate`].

use std::marker::PhantomData;

use super::{Delta, Gate, Generation};
use crate::primitives::{AtomicU64, Ordering};

#[cfg(not(loom))]
type Words<D> = std::cell::UnsafeCell<D>;
#[cfg(loom)]
type Words<D> = (Vec<AtomicU64>, PhantomData<D>);

/// One set of words for any number of writers at once.
pub(crate) struct SharedShard<D> {
    gate: Gate,
    words: [Words<D>; 2],
    _delta: PhantomData<D>,
}

// SAFETY: the words are only ever touched as atomics.
#[cfg(not(loom))]
unsafe impl<D> Sync for SharedShard<D> {}

impl<D: Delta> SharedShard<D> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            gate: Gate::new(),
            words: [Words::new(D::ZERO), Words::new(D::ZERO)],
            _delta: PhantomData,
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let words = || {
            (
                (0..D::WORDS).map(|_| AtomicU64::new(0)).collect(),
                PhantomData,
            )
        };
        Self {
            gate: Gate::new(),
            words: [words(), words()],
            _delta: PhantomData,
        }
    }

    fn words(&self, generation: Generation) -> &[AtomicU64] {
        #[cfg(not(loom))]
        // SAFETY: a delta is `WORDS` u64 words; atomics have their layout, and nobody uses them
        // otherwise.
        return unsafe {
            std::slice::from_raw_parts(self.words[generation.index()].get().cast(), D::WORDS)
        };
        #[cfg(loom)]
        &self.words[generation.index()].0
    }

    pub(crate) fn record(&self, entries: &[(usize, u64)], current: impl Fn() -> Generation) {
        let generation = self.gate.enter(current);
        let words = self.words(generation);
        for &(word, amount) in entries {
            words[word].fetch_add(amount, Ordering::Relaxed);
        }
        self.gate.leave(generation);
    }

    pub(crate) fn settle(&self, frozen: Generation) {
        self.gate.settle(frozen);
    }

    pub(crate) fn add_up(&self, generation: Generation, total: &mut D) {
        for (sum, word) in total.words_mut().iter_mut().zip(self.words(generation)) {
            *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        self.gate.reset();
    }
}
