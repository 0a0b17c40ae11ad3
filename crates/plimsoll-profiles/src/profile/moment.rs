//! When a profile was read, by two clocks.

use plimsoll_sys::os::clock;

/// A time by the clock of the day, which profiles show, and by a clock that cannot be set, for durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Nanoseconds since 1970.
    pub since_1970: i64,
    /// Nanoseconds since the system started.
    pub since_boot: u64,
}

impl Moment {
    /// Returns the present.
    pub fn now() -> Self {
        Self {
            since_1970: i64::try_from(clock::unix_nanos()).unwrap_or(i64::MAX),
            since_boot: clock::since_boot(),
        }
    }

    /// Returns the moment that many nanoseconds earlier.
    pub(super) fn before(self, nanoseconds: u64) -> Self {
        let of_day = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        Self {
            since_1970: self.since_1970.saturating_sub(of_day),
            since_boot: self.since_boot.saturating_sub(nanoseconds),
        }
    }

    /// Returns the nanoseconds from `earlier` to this moment; 0 if it is not earlier.
    pub fn since(self, earlier: Self) -> i64 {
        let nanoseconds = self.since_boot.saturating_sub(earlier.since_boot);
        i64::try_from(nanoseconds).unwrap_or(i64::MAX)
    }

    /// Returns the nanoseconds from `earlier` to this moment by the clock of the day, by which intervals
    /// follow each other without a gap. If that clock was set back or forward by a second or more
    /// meanwhile, does what [`Moment::since`] does.
    pub(super) fn since_by_day(self, earlier: Self) -> i64 {
        const SECOND: u64 = 1_000_000_000;
        let by_day = self.since_1970.saturating_sub(earlier.since_1970);
        let by_boot = self.since(earlier);
        let was_set = by_day <= 0 || by_day.abs_diff(by_boot) >= SECOND;
        if was_set { by_boot } else { by_day }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_clock_of_the_day_changes_no_duration() {
        let earlier = Moment {
            since_1970: 1_000,
            since_boot: 100,
        };
        let later = Moment {
            since_1970: 900,
            since_boot: 350,
        };
        assert_eq!(later.since(earlier), 250);
        assert_eq!(earlier.since(later), 0);
    }

    #[test]
    fn intervals_follow_the_clock_of_the_day_unless_it_is_set() {
        const SECOND: i64 = 1_000_000_000;
        let moment = |since_1970: i64, since_boot: i64| Moment {
            since_1970,
            since_boot: since_boot as u64,
        };
        let earlier = moment(5 * SECOND, 7 * SECOND);
        let since = |since_1970, since_boot| moment(since_1970, since_boot).since_by_day(earlier);
        assert_eq!(since(6 * SECOND + 3, 8 * SECOND), SECOND + 3);
        assert_eq!(since(9 * SECOND, 8 * SECOND), SECOND);
        assert_eq!(since(2 * SECOND, 8 * SECOND), SECOND);
    }

    #[test]
    fn a_moment_before_is_earlier_by_both_clocks() {
        let now = Moment::now();
        let before = now.before(7);
        assert_eq!(now.since_1970 - before.since_1970, 7);
        assert_eq!(now.since(before), 7);
    }
}
