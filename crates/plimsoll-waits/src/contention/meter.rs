//! An estimate of lock waits while nothing is recorded: one in eight waits is timed, and counts for
//! eight.
//!
//! The choice is random. If every eighth wait were timed, a thread that waits for two locks in turn
//! would have only one of them timed.

use plimsoll_sys::os::clock;

use super::{rates, totals};

/// One in this many waits is timed.
const ONE_IN: u64 = 8;

/// A wait that is timed.
pub struct Timed {
    start: u64,
}

/// Returns whether to time the wait that the calling thread is about to begin, if it is for a lock.
#[inline]
pub fn is_turn() -> bool {
    rates::random() % ONE_IN == 0
}

impl Timed {
    /// Begins a wait now.
    pub fn begin() -> Self {
        Self {
            start: clock::now(),
        }
    }

    /// Begins a wait in the past, at a time that [`Timed::start`] returned.
    pub fn since(start: u64) -> Self {
        Self { start }
    }

    /// Returns the start of the wait.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Ends the wait, and adds it to the estimate.
    pub fn end(self) {
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
        // Also if only every second or eighth wait is for a lock.
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
