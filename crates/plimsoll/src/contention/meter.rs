//! How long threads wait for locks while nothing is recorded: every eighth wait is timed, and
//! counts for eight.

use std::cell::Cell;

use super::{clock, totals};

/// One in how many waits is timed.
const EVERY: u32 = 8;

thread_local! {
    /// Waits of this thread until one has been timed.
    static LEFT: Cell<u32> = const { Cell::new(EVERY) };
}

/// A wait that is timed.
pub(crate) struct Timed {
    start: u64,
}

/// Whether the wait for a lock that the calling thread is about to begin is to be timed.
#[inline]
pub(crate) fn is_turn() -> bool {
    LEFT.with(|left| {
        let turn = left.get() <= 1;
        left.set(if turn { EVERY } else { left.get() - 1 });
        turn
    })
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
        totals::add_estimated(waited.saturating_mul(EVERY.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_is_timed() {
        let turns = (0..800).filter(|_| is_turn()).count();
        assert_eq!(turns, 100);
    }
}
