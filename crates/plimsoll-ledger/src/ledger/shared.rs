//! The shared shard, for threads without one: atomic read-modify-writes behind a [`Gate`].

use std::marker::PhantomData;

use super::{Delta, Gate, Generation};
#[cfg(not(loom))]
use plimsoll_sys::primitives::AtomicUsize;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

#[cfg(not(loom))]
type Words<D> = std::cell::UnsafeCell<D>;
#[cfg(loom)]
type Words<D> = (Vec<AtomicU64>, PhantomData<D>);

/// One set of words for any number of concurrent writers.
pub struct SharedShard<D> {
    gate: Gate,
    words: [Words<D>; 2],
    /// Memory that replaces those words: the address of two adjacent generations; 0 for none.
    #[cfg(not(loom))]
    place: AtomicUsize,
    _delta: PhantomData<D>,
}

// SAFETY: the words are only accessed as atomics.
#[cfg(not(loom))]
unsafe impl<D> Sync for SharedShard<D> {}

impl<D: Delta> SharedShard<D> {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            gate: Gate::new(),
            words: [Words::new(D::ZERO), Words::new(D::ZERO)],
            place: AtomicUsize::new(0),
            _delta: PhantomData,
        }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
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
        // SAFETY: a delta consists of `WORDS` u64 words; atomics have their layout, and all other
        // accesses are atomic too.
        return unsafe {
            std::slice::from_raw_parts(self.words[generation.index()].get().cast(), D::WORDS)
        };
        #[cfg(loom)]
        &self.words[generation.index()].0
    }

    /// Returns the words at the address from [`SharedShard::place_at`], if it was called.
    #[cfg(not(loom))]
    fn placed_words(&self, generation: Generation) -> Option<&[AtomicU64]> {
        let place = self.place.load(Ordering::Acquire);
        let address = place + generation.index() * super::GENERATION_BYTES;
        // SAFETY: `place_at` received memory for two generations that is never unmapped.
        (place != 0)
            .then(|| unsafe { std::slice::from_raw_parts(address as *const AtomicU64, D::WORDS) })
    }

    #[cfg(loom)]
    fn placed_words(&self, _: Generation) -> Option<&[AtomicU64]> {
        None
    }

    /// Makes writers add to words at this address from now on: two generations, accessible
    /// permanently.
    #[cfg(not(loom))]
    pub fn place_at(&self, address: usize) {
        self.place.store(address, Ordering::Release);
    }

    /// Returns the counts from before [`SharedShard::place_at`].
    #[cfg(not(loom))]
    pub fn counted_early(&self) -> D {
        let mut counted = D::ZERO;
        for generation in [0, 1].map(Generation::of_index) {
            add_words(self.words(generation), &mut counted);
        }
        counted
    }

    /// Sets the total to `counted`, in the words of `generation`: in the child of a fork.
    #[cfg(not(loom))]
    pub fn begin_anew(&self, generation: Generation, counted: &D) {
        for generation in [0, 1].map(Generation::of_index) {
            let placed = self.placed_words(generation).unwrap_or_default();
            for word in self.words(generation).iter().chain(placed) {
                word.store(0, Ordering::Relaxed);
            }
        }
        for (word, &count) in self.words(generation).iter().zip(counted.words()) {
            word.store(count, Ordering::Relaxed);
        }
    }

    pub fn record(&self, entries: &[(usize, u64)], current: impl Fn() -> Generation) {
        let generation = self.gate.enter(current);
        let words = self
            .placed_words(generation)
            .unwrap_or_else(|| self.words(generation));
        for &(word, amount) in entries {
            words[word].fetch_add(amount, Ordering::Relaxed);
        }
        self.gate.leave(generation);
    }

    pub fn settle(&self, frozen: Generation) {
        self.gate.settle(frozen);
    }

    pub fn add_up(&self, generation: Generation, total: &mut D) {
        add_words(self.words(generation), total);
        if let Some(words) = self.placed_words(generation) {
            add_words(words, total);
        }
    }

    #[cfg(not(loom))]
    pub fn reset(&self) {
        self.gate.reset();
    }
}

fn add_words<D: Delta>(words: &[AtomicU64], total: &mut D) {
    for (sum, word) in total.words_mut().iter_mut().zip(words) {
        *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
    }
}
