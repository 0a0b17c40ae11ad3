//! The growth of a figure over its last minute.

use std::collections::VecDeque;

/// The longest time over which growth is measured, and shorter ones that are tried in turn, in seconds.
const WINDOWS: [f64; 4] = [60.0, 30.0, 15.0, 8.0];

/// The minimum number of readings.
const MIN_READINGS: usize = 8;

/// The maximum number of readings that are kept: one each second for the longest window.
const MAX_READINGS: usize = 64;

/// The maximum difference between the growth of the two halves of a window, as a part of the whole's.
const STEADY: f64 = 0.25;

/// The minimum share of the variance that steady growth explains: growth in three steps explains 0.89.
const MIN_EXPLAINED: f64 = 0.9;

/// The age at which the last reading says nothing of now, in nanoseconds.
const MAX_AGE: u64 = 5_000_000_000;

/// Growth below this that is not steady, in bytes a second, is none: 4 GiB a day.
const NONE_BELOW: f64 = 48.0 * 1024.0;

/// The readings of a figure, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Trend {
    /// Times in nanoseconds, and bytes.
    readings: VecDeque<(u64, u64)>,
}

impl Trend {
    /// Adds a reading. Times increase.
    pub(super) fn note(&mut self, at: u64, bytes: u64) {
        if self.readings.len() == MAX_READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((at, bytes));
    }

    /// Returns the growth in bytes a second, over the longest window in which it is steady; `None` without one. A shorter
    /// window counts only if the growth is higher there: between two steps, nothing grows.
    /// Also `None` if the last reading is not of the last seconds before `now`.
    pub(super) fn bytes_per_second(&self, now: u64) -> Option<f64> {
        let (last, _) = *self.readings.back()?;
        if now.saturating_sub(last) > MAX_AGE {
            return None;
        }
        let whole = slope(&self.points(WINDOWS[0]))?;
        WINDOWS.into_iter().find_map(|seconds| {
            let slope = steady_slope(&self.points(seconds));
            slope.filter(|&slope| seconds == WINDOWS[0] || slope >= whole)
        })
    }

    /// Returns the readings of the last seconds: their times, of which the last is 0, and bytes.
    fn points(&self, seconds: f64) -> Vec<(f64, f64)> {
        let last = self.readings.back().map_or(0, |&(at, _)| at);
        let age = |at: u64| last.saturating_sub(at) as f64 / 1e9;
        // One more second: readings are not made exactly in time.
        let readings = self.readings.iter();
        readings
            .filter(|&&(at, _)| age(at) <= seconds + 1.0)
            .map(|&(at, bytes)| (-age(at), bytes as f64))
            .collect()
    }
}

/// Returns the slope of points if both halves have about the same.
fn steady_slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < MIN_READINGS {
        return None;
    }
    let whole = slope(points)?;
    let middle = points.len() / 2;
    let (first, second) = (slope(&points[..=middle])?, slope(&points[middle..])?);
    let difference = (first - second).abs();
    let is_steady =
        difference <= STEADY * whole.abs() && explained_share(points, whole) >= MIN_EXPLAINED;
    let is_none = whole.abs() < NONE_BELOW && difference < NONE_BELOW;
    match (is_steady, is_none) {
        (true, _) => Some(whole),
        (false, true) => Some(0.0),
        (false, false) => None,
    }
}

/// Returns the share of the variance that a line of this slope explains.
fn explained_share(points: &[(f64, f64)], slope: f64) -> f64 {
    let count = points.len() as f64;
    let variance = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let mean = points.iter().map(of).sum::<f64>() / count;
        points
            .iter()
            .map(|point| (of(point) - mean).powi(2))
            .sum::<f64>()
    };
    let rest = variance(&|point| point.1 - slope * point.0);
    1.0 - rest / variance(&|point| point.1)
}

/// Returns the slope of the line with the least squares of distances; `None` without two times.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let products: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (squares > 0.0).then(|| products / squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    /// Returns the growth of a figure that is read each second, from `bytes` of the second.
    fn growth(seconds: u64, bytes: impl Fn(f64) -> f64) -> Option<f64> {
        let mut trend = Trend::default();
        for second in 0..seconds {
            // The readings are some milliseconds late.
            let at = second * 1_000_000_000 + second % 3 * 20_000_000;
            trend.note(at, bytes(at as f64 / 1e9) as u64);
        }
        assert_eq!(
            trend.bytes_per_second(seconds * 1_000_000_000 + MAX_AGE),
            None,
            "too old"
        );
        trend.bytes_per_second(seconds * 1_000_000_000)
    }

    #[test]
    fn steady_growth_is_found() {
        for (rate, noise) in [
            (1.0, 0.0),
            (8.0, 2.0),
            (300.0, 20.0),
            (-5.0, 1.0),
            (0.01, 0.0),
        ] {
            let jitter = |at: f64| noise * MIB * ((at * 12.9898).sin() * 43_758.545).fract();
            for seconds in [20, 60, 300] {
                let found = growth(seconds, |at| 4096.0 * MIB + rate * MIB * at + jitter(at));
                let found = found.unwrap_or_else(|| panic!("{rate} {seconds}"));
                assert!(
                    (found / MIB - rate).abs() < 0.2 * rate.abs(),
                    "{found} {rate} {seconds}"
                );
            }
        }
    }

    #[test]
    fn no_growth_is_none_at_all() {
        assert_eq!(growth(60, |_| 100.0 * MIB), Some(0.0));
        assert_eq!(
            growth(60, |at| 100.0 * MIB + 4096.0 * (at * 3.0).sin()),
            Some(0.0)
        );
    }

    #[test]
    fn growth_that_has_just_begun_is_found_in_a_shorter_time() {
        let began = 80.0;
        let found = growth(100, |at| 100.0 * MIB + 2.0 * MIB * (at - began).max(0.0));
        assert!((found.unwrap() / MIB - 2.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn growth_that_is_not_steady_is_unknown() {
        // Steps, a maximum, and growth that accelerates or has just ended.
        for seconds in 50..70 {
            let steps = growth(seconds, |at| 64.0 * MIB * (at / 25.0).floor());
            assert_eq!(steps, None, "{seconds}");
        }
        assert_eq!(growth(60, |at| MIB * at.min(45.0)), None);
        assert_eq!(
            growth(60, |at| MIB * (60.0 - (at - 56.0).abs() * 5.0)),
            None
        );
        assert_eq!(growth(60, |at| MIB * (at / 3.0).exp2()), None);
        assert_eq!(growth(7, |at| MIB * at), None, "too few readings");
        assert_eq!(Trend::default().bytes_per_second(0), None);
    }

    #[test]
    fn readings_of_one_moment_have_no_growth() {
        let mut trend = Trend::default();
        for bytes in 0..100 {
            trend.note(5, bytes);
        }
        assert_eq!(trend.bytes_per_second(5), None);
    }
}
