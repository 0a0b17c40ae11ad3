//! How long threads wait for locks while nothing is recorded: one in eight waits is timed, and
//! counts for eight.
//!
//! Which one is left to chance: of every eighth, a thread that waits for two locks in turn would
//! have only one of them timed.

use super::{clock, rates, totals};

/// One in how many waits is timed.
const ONE_IN: u64 = 8;

/// A wait that is timed.
pub(crate) struct Timed {
    start: u64,
}

/// Whether the wait that the calling thread is about to begin is to be timed, if it is for a lock.
#[inline]
pub(crate) fn is_turn() -> bool {
    rates::random() % ONE_IN == 0
}

impl Timed {
    /// The wait begins.
    pub(crate) fn begin() -> Self {
        Self {
            start: clock::now(),
        }
    }

    /// The same for one that began then, at what [`Timed::start`] was.
    #[cfg(feature = "tokio")]
    pub(crate) fn since(start: u64) -> Self {
        Self { start }
    }

    /// When it began.
    #[cfg(feature = "tokio")]
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The wait has ended.
    pub(crate) fn end(self) {
        let waited = clock::now().saturating_sub(self.start);
        totals::add_estimated(waited.saturating_mul(ONE_IN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_is_timed() {
        const WAITS: usize = 80_000;
        // Of every second wait, too, and of any other pattern.
        for every in [1, 2, 8] {
            let waits = WAITS * every;
            let turns = (0..waits).filter(|wait| is_turn() && wait % every == 0);
            // Within six standard deviations.
            let (expected, deviation) = (WAITS as f64 / 8.0, (WAITS as f64 * 7.0 / 64.0).sqrt());
            let off = (turns.count() as f64 - expected) / deviation;
            assert!(
                off.abs() < 6.0,
                "of each {every}: {off} standard deviations"
            );
        }
    }
}
