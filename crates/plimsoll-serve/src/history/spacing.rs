//! The times of kept readings of profiles: the sparser, the older.

const SECOND: u64 = 1_000_000_000;

/// The time between two readings, in nanoseconds.
pub(super) const PERIOD: u64 = 60 * SECOND;

/// The time between kept readings, by their age: from this age on, at least that.
const SPACING: [(u64, u64); 3] = [
    (0, PERIOD),
    (600 * SECOND, 600 * SECOND),
    (10_800 * SECOND, 3600 * SECOND),
];

/// The age from which on readings are dropped.
const OLDEST: u64 = 2 * 86_400 * SECOND;

/// Decides which readings are still kept. A reading stays if it is the first of its interval, counted
/// from the system's start.
pub(super) struct Spacing {
    now: u64,
    before: Option<(u64, u64)>,
}

impl Spacing {
    pub(super) fn new(now: u64) -> Self {
        Self { now, before: None }
    }

    /// Returns whether the reading of this time stays. Called for all readings, oldest first.
    pub(super) fn stays(&mut self, at: u64) -> bool {
        let age = self.now.saturating_sub(at);
        let spacing = SPACING.iter().rev().find(|(from, _)| age >= *from);
        let spacing = spacing.map_or(PERIOD, |(_, spacing)| *spacing);
        let interval = (spacing, at / spacing);
        let is_close = self.before == Some(interval) && spacing > PERIOD;
        self.before = Some(interval);
        age < OLDEST && !is_close
    }
}
