//! The number of pages that the program needed at the most in the last seconds.

use plimsoll_sys::os::clock;

/// The length of a period, for which there is one maximum.
const PERIOD_NS: u64 = 1_000_000_000;

/// The number of periods over which a maximum counts.
const PERIODS: usize = 8;

/// The minimum time between two returns of memory to the system.
const PAUSE_NS: u64 = 50_000_000;

/// The number of idle pages that are kept in any case: 1 MiB.
const SLACK: u64 = 128;

/// See the module documentation.
pub(super) struct Demand {
    /// The maximum number of pages in use, by period.
    maxima: [u64; PERIODS],
    period: u64,
    /// The time at which memory may be returned again.
    next_ns: u64,
}

impl Demand {
    pub(super) const fn new() -> Self {
        Self {
            maxima: [0; PERIODS],
            period: 0,
            next_ns: 0,
        }
    }

    /// Records the number of pages in use.
    pub(super) fn note(&mut self, in_use: u64) {
        let place = self.period as usize % PERIODS;
        self.maxima[place] = self.maxima[place].max(in_use);
    }

    /// Returns the number of idle pages to return to the system now: those that the program has not needed
    /// for [`PERIODS`] seconds, unless it is too early after the last return.
    pub(super) fn excess(&mut self, in_use: u64, idle: u64) -> u32 {
        if idle <= SLACK {
            return 0;
        }
        let now = clock::coarse();
        if now < self.next_ns {
            return 0;
        }
        self.next_ns = now + PAUSE_NS;
        self.turn(now / PERIOD_NS);
        self.note(in_use);
        let needed = self.maxima.iter().copied().max().unwrap_or(0) - in_use;
        let excess = idle.saturating_sub(needed + SLACK);
        u32::try_from(excess).unwrap_or(u32::MAX)
    }

    /// Begins the current period. Periods without a call have no maximum.
    fn turn(&mut self, period: u64) {
        let passed = period.saturating_sub(self.period);
        for passed in 1..=passed.min(PERIODS as u64) {
            self.maxima[(self.period + passed) as usize % PERIODS] = 0;
        }
        self.period = self.period.max(period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_excess_when_their_use_is_over_for_all_periods() {
        let mut demand = Demand::new();
        demand.turn(100);
        demand.note(10_000);
        for second in 100..100 + PERIODS as u64 {
            demand.turn(second);
            demand.note(1000);
            assert_eq!(demand.maxima.iter().max(), Some(&10_000), "{second}");
        }
        demand.turn(100 + PERIODS as u64);
        demand.note(1000);
        assert_eq!(demand.maxima.iter().max(), Some(&1000));
        demand.turn(1000);
        assert_eq!(demand.maxima, [0; PERIODS]);
    }
}
