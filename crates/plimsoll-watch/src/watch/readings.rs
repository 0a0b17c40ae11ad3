//! The series of readings of the figures, with its rates, peak and trend.
//!
//! Times are since watching began. If counters fall, another program serves at the same address,
//! and the series begins anew.

use std::collections::VecDeque;
use std::time::Duration;

use super::metrics::{HEAP, Histogram, Metrics};

/// The bytes ever allocated.
pub const ALLOCATED: &str = "plimsoll_gc_heap_allocs_bytes_total";

/// The maximum number of readings that are drawn.
const KEPT: usize = 600;

/// The period over which the trend is computed.
const TREND_OVER: Duration = Duration::from_secs(60);

/// The minimum number of readings for a trend.
const FEWEST: usize = 5;

/// The series of readings.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// The newest reading, and the one before it.
    newest: Option<Reading>,
    before: Option<Reading>,
    /// The points of the newest readings, oldest first.
    points: VecDeque<Point>,
    /// The points of the program's own history, from before the first reading, oldest first.
    earlier: Vec<Point>,
    peak: f64,
    restarts: u32,
}

#[derive(Clone, Debug)]
struct Reading {
    at: Duration,
    metrics: Metrics,
}

/// The part of a reading that is drawn over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The time of the reading; 0 for one of the program's own history.
    pub at: Duration,
    /// The bytes in use.
    pub heap: f64,
    /// The bytes allocated per second since the previous reading.
    pub rate: f64,
}

/// The trend of the heap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trend {
    /// The series has too few readings.
    Unknown,
    /// The heap changes by at most a fiftieth of its mean, or by less than its fluctuations can
    /// explain.
    Steady,
    /// Bytes per second.
    Rising(f64),
    /// Bytes per second, as a positive number.
    Falling(f64),
}

impl Readings {
    /// Adds a reading that was made after all others.
    pub fn add(&mut self, at: Duration, metrics: Metrics) {
        if self
            .newest
            .as_ref()
            .is_some_and(|newest| is_another(&newest.metrics, &metrics))
        {
            *self = Self {
                restarts: self.restarts + 1,
                ..Self::default()
            };
        }
        self.before = self.newest.take();
        let heap = metrics.number(HEAP).unwrap_or(0.0);
        self.newest = Some(Reading { at, metrics });
        self.peak = self.peak.max(heap);
        if self.points.len() == KEPT {
            self.points.pop_front();
        }
        self.points.push_back(Point {
            at,
            heap,
            rate: self.rate(ALLOCATED).unwrap_or(0.0),
        });
    }

    /// Adds points from before the first reading, oldest first.
    pub fn add_earlier(&mut self, points: Vec<Point>) {
        let highest = points.iter().map(|point| point.heap).fold(0.0, f64::max);
        self.peak = self.peak.max(highest);
        self.earlier = points;
    }

    /// Returns the points that are drawn: the newest of all, oldest first.
    pub fn drawn(&self) -> impl Iterator<Item = &Point> {
        let all = self.earlier.len() + self.points.len();
        let points = self.earlier.iter().chain(&self.points);
        points.skip(all.saturating_sub(KEPT))
    }

    /// Returns the time of the newest reading.
    pub fn at(&self) -> Option<Duration> {
        self.newest.as_ref().map(|reading| reading.at)
    }

    /// Returns the newest reading.
    pub fn metrics(&self) -> Option<&Metrics> {
        self.newest.as_ref().map(|reading| &reading.metrics)
    }

    /// Returns a number of the newest reading.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.metrics()?.number(name)
    }

    /// Returns the increase of a counter per second between the newest two readings.
    pub fn rate(&self, name: &str) -> Option<f64> {
        self.rate_of(|metrics| metrics.number(name))
    }

    /// Returns the increase per second of a value that is computed from counters.
    pub fn rate_of(&self, value: impl Fn(&Metrics) -> Option<f64>) -> Option<f64> {
        let (newest, before) = (self.newest.as_ref()?, self.before.as_ref()?);
        let seconds = newest.at.saturating_sub(before.at).as_secs_f64();
        let risen = value(&newest.metrics)? - value(&before.metrics)?;
        // A value that falls in a program that was not restarted is not a counter.
        (seconds > 0.0 && risen >= 0.0).then(|| risen / seconds)
    }

    /// Returns the number of values per second that entered each bucket of a histogram between the
    /// newest two readings.
    pub fn histogram_rate(&self, name: &str) -> Option<Histogram> {
        let (newest, before) = (self.newest.as_ref()?, self.before.as_ref()?);
        let seconds = newest.at.saturating_sub(before.at).as_secs_f64();
        let (newest, before) = (
            newest.metrics.histogram(name)?,
            before.metrics.histogram(name)?,
        );
        if seconds <= 0.0 {
            return None;
        }
        newest.with(before, |now, before| (now - before).max(0.0) / seconds)
    }

    /// Returns the most bytes in use in any reading.
    pub fn peak(&self) -> f64 {
        self.peak
    }

    /// Returns how often another program replaced the watched one.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Returns the newest readings, oldest first.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.points.iter()
    }

    /// Computes the trend from the regression line through the readings of the last minute.
    pub fn trend(&self) -> Trend {
        let Some(end) = self.at() else {
            return Trend::Unknown;
        };
        let begin = end.saturating_sub(TREND_OVER);
        let recent: Vec<(f64, f64)> = self
            .points()
            .filter(|point| point.at >= begin)
            .map(|point| (point.at.as_secs_f64(), point.heap))
            .collect();
        if recent.len() < FEWEST {
            return Trend::Unknown;
        }
        let count = recent.len() as f64;
        let mean_time = recent.iter().map(|(time, _)| time).sum::<f64>() / count;
        let mean = recent.iter().map(|(_, heap)| heap).sum::<f64>() / count;
        let spread: f64 = recent
            .iter()
            .map(|(time, _)| (time - mean_time).powi(2))
            .sum();
        let together: f64 = recent
            .iter()
            .map(|(time, heap)| (time - mean_time) * (heap - mean))
            .sum();
        if spread <= 0.0 {
            return Trend::Unknown;
        }
        let slope = together / spread;
        let left: f64 = recent
            .iter()
            .map(|(time, heap)| (heap - mean - slope * (time - mean_time)).powi(2))
            .sum();
        let error = (left / (count - 2.0) / spread).sqrt();
        let length = recent[recent.len() - 1].0 - recent[0].0;
        if (slope * length).abs() <= mean / 50.0 || slope.abs() < 3.0 * error {
            Trend::Steady
        } else if slope > 0.0 {
            Trend::Rising(slope)
        } else {
            Trend::Falling(-slope)
        }
    }
}

/// Returns whether the counter of allocated bytes has fallen: then `after` is of another program.
fn is_another(before: &Metrics, after: &Metrics) -> bool {
    match (before.number(ALLOCATED), after.number(ALLOCATED)) {
        (Some(before), Some(after)) => after < before,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(heap: f64, allocated: f64, sizes: [u32; 2]) -> Metrics {
        let text = format!(
            "{HEAP} {heap}\n{ALLOCATED} {allocated}\nplimsoll_h_bucket{{le=\"8.0\"}} {}\nplimsoll_h_bucket{{le=\"+Inf\"}} {}\n",
            sizes[0], sizes[1]
        );
        Metrics::parse(&text).expect("a page")
    }

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn rates_are_of_the_time_between_the_newest_two() {
        let mut readings = Readings::default();
        assert_eq!(readings.rate(ALLOCATED), None);
        readings.add(at(1.0), page(10.0, 100.0, [1, 2]));
        assert_eq!(readings.rate(ALLOCATED), None);
        readings.add(at(3.0), page(30.0, 500.0, [5, 6]));
        assert_eq!(readings.rate(ALLOCATED), Some(200.0));
        let sizes = readings.histogram_rate("plimsoll_h").expect("one exists");
        assert_eq!(sizes.buckets(), [(8.0, 2.0), (f64::INFINITY, 0.0)]);
        readings.add(at(4.0), page(20.0, 500.0, [5, 6]));
        assert_eq!(readings.rate(ALLOCATED), Some(0.0));
        assert_eq!(readings.rate("plimsoll_missing"), None);
        assert_eq!(readings.peak(), 30.0);
        assert_eq!(readings.at(), Some(at(4.0)));
        let rates: Vec<f64> = readings.points().map(|point| point.rate).collect();
        assert_eq!(rates, [0.0, 200.0, 0.0]);
    }

    #[test]
    fn a_program_that_was_started_again_is_another_one() {
        let mut readings = Readings::default();
        readings.add(at(1.0), page(1000.0, 5000.0, [1, 2]));
        let earlier = Point {
            at: Duration::ZERO,
            heap: 2000.0,
            rate: 1.0,
        };
        readings.add_earlier(vec![earlier; 700]);
        assert_eq!(readings.peak(), 2000.0);
        assert_eq!(readings.points().len(), 1);
        assert_eq!(readings.drawn().count(), KEPT);
        assert_eq!(
            readings.drawn().last().map(|point| point.heap),
            Some(1000.0)
        );
        readings.add(at(2.0), page(10.0, 20.0, [0, 0]));
        assert_eq!(readings.peak(), 10.0);
        assert_eq!(readings.rate(ALLOCATED), None);
        assert_eq!(readings.points().len(), 1);
        assert_eq!(readings.drawn().count(), 1);
        assert_eq!(readings.restarts(), 1);
        readings.add(at(3.0), page(10.0, 30.0, [0, 0]));
        assert_eq!(
            (readings.restarts(), readings.rate(ALLOCATED)),
            (1, Some(10.0))
        );
    }

    #[test]
    fn readings_of_one_moment_have_no_rate() {
        let mut readings = Readings::default();
        readings.add(at(1.0), page(1.0, 1.0, [1, 1]));
        readings.add(at(1.0), page(1.0, 2.0, [2, 2]));
        assert_eq!(readings.rate(ALLOCATED), None);
        assert_eq!(readings.histogram_rate("plimsoll_h"), None);
        assert_eq!(readings.trend(), Trend::Unknown);
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut readings = Readings::default();
        for second in 0..2 * KEPT {
            readings.add(
                at(second as f64),
                page(second as f64, second as f64, [0, 0]),
            );
        }
        assert_eq!(readings.points().len(), KEPT);
        assert_eq!(
            readings.points().next().map(|point| point.heap),
            Some(KEPT as f64)
        );
    }

    fn trend(heap: impl Fn(f64) -> f64) -> Trend {
        let mut readings = Readings::default();
        for second in 0..100 {
            let second = f64::from(second);
            readings.add(at(second), page(heap(second), second, [0, 0]));
        }
        readings.trend()
    }

    #[test]
    fn a_trend_exceeds_the_swings() {
        let Trend::Rising(slope) = trend(|second| 1e6 + 1000.0 * second) else {
            panic!("it rises");
        };
        assert!((slope - 1000.0).abs() < 1e-6, "{slope}");
        let Trend::Falling(slope) = trend(|second| 1e6 - 1000.0 * second) else {
            panic!("it falls");
        };
        assert!((slope - 1000.0).abs() < 1e-6, "{slope}");
        assert_eq!(trend(|_| 1e6), Trend::Steady);
        assert_eq!(trend(|_| 0.0), Trend::Steady);
        assert_eq!(trend(|second| 1e6 + 1e5 * (second % 2.0)), Trend::Steady);
        // A sawtooth that rises slowly and falls at once.
        assert_eq!(trend(|second| 1e6 + 1e5 * (second % 7.0)), Trend::Steady);
        // Readings from more than a minute ago do not count.
        assert_eq!(
            trend(|second| if second < 30.0 { 1.0 } else { 1e6 }),
            Trend::Steady
        );
        let mut readings = Readings::default();
        for second in 0..4 {
            readings.add(
                at(f64::from(second)),
                page(1e6 * f64::from(second), 0.0, [0, 0]),
            );
        }
        assert_eq!(readings.trend(), Trend::Unknown);
    }
}
