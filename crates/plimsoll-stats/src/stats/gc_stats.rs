//! Statistics of garbage collections: Go's `debug.GCStats`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::gc::{self, Pauses};

#[cfg(doc)]
use super::MemStats;

/// Collections of all [collectors](crate::gc), and their pauses. Read by [`gc_stats()`], or by
/// [`GcStats::read`], which reuses the memory of the previous reading.
///
/// All figures of one collector belong to one instant and agree with [`MemStats`] as in Go:
/// `pause[0]` here and `pause_ns[(num_gc + 255) % 256]` there belong to the newest cycle.
///
/// ```
/// let stats = plimsoll::gc_stats();
/// // The shortest and the longest of the last 256 pauses; zero without a collector.
/// println!("{:?} to {:?}", stats.pause_quantiles[0], stats.pause_quantiles[4]);
/// assert!(stats.pause.len() <= 256);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcStats {
    /// The time of the last mark termination; `None` without one. Exact.
    pub last_gc: Option<SystemTime>,
    /// Completed collections. A count, exact; never falls.
    pub num_gc: u64,
    /// The total duration of all pauses. Exact; never falls.
    pub pause_total: Duration,
    /// The pause durations of each of the last 256 cycles, the newest first. Exact.
    pub pause: Vec<Duration>,
    /// The end of marking in each of those cycles, the newest first. Exact.
    pub pause_end: Vec<SystemTime>,
    /// Quantiles of `pause`. With `m` quantiles and `n` pauses in ascending order, quantile `i` is
    /// the pause at index `n i / (m - 1)`, rounded down. The first is the shortest pause, the last
    /// the longest. The length stays as it was before the reading; [`gc_stats()`] returns 5. All
    /// are zero without collections.
    pub pause_quantiles: Vec<Duration>,
}

/// Reads [`GcStats`], with five quantiles. Takes some microseconds.
pub fn gc_stats() -> GcStats {
    let mut stats = GcStats::with_quantiles(5);
    stats.read();
    stats
}

impl GcStats {
    /// Creates empty statistics with `quantiles` quantiles, to be filled by [`read`](Self::read).
    pub fn with_quantiles(quantiles: usize) -> Self {
        Self {
            pause_quantiles: vec![Duration::ZERO; quantiles],
            ..Self::default()
        }
    }

    /// Reads the current statistics. Does not allocate after the first reading.
    pub fn read(&mut self) {
        let mut pauses = Pauses::new();
        let sums = gc::lock().sums(Some(&mut pauses));
        let time = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        self.num_gc = sums.cycles;
        self.last_gc = (sums.last_end != 0).then(|| time(sums.last_end));
        self.pause_total = Duration::from_nanos(sums.pause_ns);
        let newest_first = || pauses.entries().iter().rev();
        self.pause.clear();
        self.pause_end.clear();
        for all in [self.pause.capacity(), self.pause_end.capacity()] {
            if all < crate::gc::record::PAUSES {
                self.pause.reserve(crate::gc::record::PAUSES);
                self.pause_end.reserve(crate::gc::record::PAUSES);
            }
        }
        let lengths = newest_first().map(|entry| Duration::from_nanos(entry.pause_ns));
        self.pause.extend(lengths);
        let ends = newest_first().map(|entry| time(entry.end));
        self.pause_end.extend(ends);
        let mut sorted = [0; crate::gc::record::PAUSES];
        for (place, entry) in sorted.iter_mut().zip(pauses.entries()) {
            *place = entry.pause_ns;
        }
        let sorted = &mut sorted[..pauses.entries().len()];
        sorted.sort_unstable();
        fill_quantiles(&mut self.pause_quantiles, sorted);
    }
}

fn fill_quantiles(quantiles: &mut [Duration], sorted: &[u64]) {
    let steps = quantiles.len().saturating_sub(1);
    for (number, quantile) in quantiles.iter_mut().enumerate() {
        let at = if number == steps {
            sorted.len().saturating_sub(1)
        } else {
            sorted.len() * number / steps
        };
        *quantile = Duration::from_nanos(sorted.get(at).copied().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantiles(count: usize, sorted: &[u64]) -> Vec<u64> {
        let mut quantiles = vec![Duration::MAX; count];
        fill_quantiles(&mut quantiles, sorted);
        let nanoseconds = quantiles.iter().map(|quantile| quantile.as_nanos() as u64);
        nanoseconds.collect()
    }

    #[test]
    fn quantiles_are_those_of_go() {
        assert_eq!(quantiles(0, &[1, 2]), [0; 0]);
        assert_eq!(quantiles(1, &[1, 2, 3]), [3], "one is the longest");
        assert_eq!(quantiles(2, &[1, 2, 3]), [1, 3]);
        assert_eq!(quantiles(5, &[10, 20, 30, 40]), [10, 20, 30, 40, 40]);
        assert_eq!(quantiles(3, &[7]), [7, 7, 7]);
        assert_eq!(quantiles(3, &[]), [0, 0, 0]);
        let many: Vec<u64> = (0..256).collect();
        assert_eq!(quantiles(5, &many), [0, 64, 128, 192, 255]);
    }
}
