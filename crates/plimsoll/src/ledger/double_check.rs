//! Independent totals, to hold the ledger against: for tests only, since every operation pays for
//! them.
//!
//! Each operation adds to `begun` before it writes to the ledger and to `done` after, with atomic
//! read-modify-writes on shared words. Whatever was done before a cut began must be in it, and
//! nothing can be in it that was not begun when it ended; when nothing is under way the three are
//! equal. Word by word.

use super::{Cut, Delta, Ledger};
use crate::primitives::{AtomicU64, Ordering};

/// The most words a checked delta may have.
const WORDS: usize = 512;

/// The totals of [`crate::alloc::counts::HEAP`].
pub(crate) static HEAP: DoubleCheck = DoubleCheck::new();

pub(crate) struct DoubleCheck {
    begun: [AtomicU64; WORDS],
    done: [AtomicU64; WORDS],
}

/// One operation under way; done when dropped.
pub(crate) struct Operation<'a> {
    check: &'a DoubleCheck,
    entries: [(usize, u64); super::MAX_ENTRIES],
    used: usize,
}

impl DoubleCheck {
    pub(crate) const fn new() -> Self {
        Self {
            begun: [const { AtomicU64::new(0) }; WORDS],
            done: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// To be called before an operation writes to the ledger; the result is to be dropped after.
    pub(crate) fn operation(&self, entries: &[(usize, u64)]) -> Operation<'_> {
        let mut operation = Operation {
            check: self,
            entries: [(0, 0); super::MAX_ENTRIES],
            used: entries.len(),
        };
        operation.entries[..entries.len()].copy_from_slice(entries);
        for &(word, amount) in entries {
            self.begun[word].fetch_add(amount, Ordering::SeqCst);
        }
        operation
    }

    /// Takes a cut and holds it against the totals. Panics if a word is out of bounds, naming it.
    pub(crate) fn read<D: Delta>(&self, ledger: &Ledger<D>) -> Cut<D> {
        let least: Vec<u64> = self
            .done
            .iter()
            .map(|word| word.load(Ordering::SeqCst))
            .collect();
        let cut = ledger.read();
        for (word, &counted) in cut.delta.words().iter().enumerate() {
            let most = self.begun[word].load(Ordering::SeqCst);
            let least = least[word];
            assert!(
                least <= counted && counted <= most,
                "word {word} of the ledger is {counted}; at least {least} were done before, at most {most} begun"
            );
        }
        cut
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        for &(word, amount) in &self.entries[..self.used] {
            self.check.done[word].fetch_add(amount, Ordering::SeqCst);
        }
    }
}
