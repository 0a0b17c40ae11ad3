//! Independent totals against which tests check the ledger. Only for tests, since they slow down
//! every operation.
//!
//! Each operation adds to `begun` before it writes to the ledger and to `done` after, with atomic
//! read-modify-writes on shared words. A cut must contain every operation that was done before the
//! cut began, and no operation that had not begun when the cut ended. When no operation is in
//! progress, the three are equal, word by word.

use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::{Cut, Delta, Ledger};

/// The maximum number of words of a checked delta.
const WORDS: usize = 512;

/// The totals of the counts of the heap.
pub static HEAP: DoubleCheck = DoubleCheck::new();

/// Independent totals of a ledger, and the operations in progress.
pub struct DoubleCheck {
    begun: [AtomicU64; WORDS],
    done: [AtomicU64; WORDS],
}

/// An operation in progress; it is done when this is dropped.
pub struct Operation<'a> {
    check: &'a DoubleCheck,
    entries: [(usize, u64); super::MAX_ENTRIES],
    used: usize,
}

impl DoubleCheck {
    /// Returns totals of nothing yet.
    pub const fn new() -> Self {
        Self {
            begun: [const { AtomicU64::new(0) }; WORDS],
            done: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Begins an operation. Call it before the operation writes to the ledger, and drop the result
    /// after.
    pub fn operation(&self, entries: &[(usize, u64)]) -> Operation<'_> {
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

    /// Takes a cut and compares it with the totals. Panics if a word is out of bounds, and names
    /// it.
    pub fn read<D: Delta>(&self, ledger: &Ledger<D>) -> Cut<D> {
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
