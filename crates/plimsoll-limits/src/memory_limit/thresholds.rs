//! Decides which thresholds are crossed: each once, until the use falls clearly below it.

use std::fmt;
use std::sync::Arc;

use super::MemoryPressure;
use plimsoll_core::settings::share;

/// The function that is called at a threshold.
pub(super) type Callback = Arc<dyn Fn(&MemoryPressure) + Send + Sync>;

/// A threshold, in hundredths of the limit.
pub(super) struct Threshold {
    pub(super) number: u64,
    pub(super) percent: u32,
    pub(super) callback: Callback,
    /// Whether it was crossed and the use has not fallen clearly below it since.
    pub(super) above: bool,
}

impl fmt::Debug for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threshold")
            .field("percent", &self.percent)
            .finish_non_exhaustive()
    }
}

/// The margin below a threshold, in hundredths of the limit, that the use must fall below before
/// the threshold can be crossed again. So small variations around a threshold cross it once.
const SLACK: u32 = 5;

impl Threshold {
    /// Returns whether the threshold is being crossed.
    pub(super) fn is_due(&self, limit: u64, used: u64) -> bool {
        !self.above && used >= share(limit, self.percent)
    }

    /// Allows the threshold to be crossed again if `used` is clearly below it.
    pub(super) fn look(&mut self, limit: u64, used: u64) {
        if self.is_clearly_below(limit, used) {
            self.above = false;
        }
    }

    /// Returns whether the threshold was crossed, and `used` is so low that it could be crossed
    /// again.
    pub(super) fn is_over(&self, limit: u64, used: u64) -> bool {
        self.above && self.is_clearly_below(limit, used)
    }

    fn is_clearly_below(&self, limit: u64, used: u64) -> bool {
        used < share(limit, self.percent.saturating_sub(SLACK)) || used == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_crossed_once_until_use_falls_clearly() {
        let mut threshold = Threshold {
            number: 0,
            percent: 80,
            callback: Arc::new(|_| {}),
            above: false,
        };
        let mut crossings = Vec::new();
        for used in [0, 79, 80, 79, 81, 75, 80, 74, 79, 80, 200, 0, 90] {
            threshold.look(100, used);
            if threshold.is_due(100, used) {
                threshold.above = true;
                crossings.push(used);
            }
        }
        assert_eq!(crossings, [80, 80, 90]);
    }

    #[test]
    fn shares_of_any_limit_can_be_had() {
        assert_eq!(share(u64::MAX, 100), u64::MAX);
        assert_eq!(share(1000, 85), 850);
        assert_eq!(share(0, 85), 0);
    }
}
