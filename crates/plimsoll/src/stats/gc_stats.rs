//! What collectors have done: Go's `debug.GCStats`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::gc::{self, Pauses};

#[cfg(doc)]
use super::MemStats;

/// Collections of all [collectors](crate::gc), and their pauses. Read by [`gc_stats()`], or by
/// [`GcStats::read`], which uses the memory of the reading before.
///
/// All of a collector's is of one instant, and agrees with [`MemStats`] as in Go: `pause[0]` is
/// that of the newest cycle, `pause_ns[(num_gc + 255) % 256]` there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcStats {
    /// When the last mark termination was; `None` if there was none. Exact.
    pub last_gc: Option<SystemTime>,
    /// Completed collections. A count, exact; never falls.
    pub num_gc: u64,
    /// How long their pauses have taken in all. Exact; never falls.
    pub pause_total: Duration,
    /// How long the pauses of each of the last 256 cycles have taken, the newest first. Exact.
    pub pause: Vec<Duration>,
    /// When the marking of each of those ended, the newest first. Exact.
    pub pause_end: Vec<SystemTime>,
    /// Quantiles of `pause`: of `m`, the first is the shortest, the last the longest, and number
    /// `i` the pause at place `n i / (m - 1)`, rounded down, of the `n` in order. As many as
    /// there were when it was read; 5 in what [`gc_stats()`] returns, and zeros if there were
    /// no collections.
    pub pause_quantiles: Vec<Duration>,
}

/// Reads [`GcStats`], with five quantiles: some microseconds.
pub fn gc_stats() -> GcStats {
    let mut stats = GcStats::with_quantiles(5);
    stats.read();
    stats
}

impl GcStats {
    /// For a reading with so many quantiles; nothing is read so far.
    pub fn with_quantiles(quantiles: usize) -> Self {
        Self {
            pause_quantiles: vec![Duration::ZERO; quantiles],
            ..Self::default()
        }
    }

    /// Reads anew. Does not allocate if it was read before.
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
            if all < super::PAUSES {
                self.pause.reserve(super::PAUSES);
                self.pause_end.reserve(super::PAUSES);
            }
        }
        let lengths = newest_first().map(|entry| Duration::from_nanos(entry.pause_ns));
        self.pause.extend(lengths);
        let ends = newest_first().map(|entry| time(entry.end));
        self.pause_end.extend(ends);
        let mut sorted = [0; super::PAUSES];
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
