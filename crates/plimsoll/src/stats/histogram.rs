//! Counts of values by how large they are.

/// Values, counted in buckets: Go's `metrics.Float64Histogram`.
///
/// `counts[i]` is the number of values that were at least `buckets[i]` and less than `buckets[i +
/// 1]`. Boundaries stay the same as long as the process lives.
///
/// Those of times are in seconds, and the same 163 in each, Go's: minus infinity, 0, 64 ns, and so
/// on up to 140,737 seconds (2^47 ns), and infinity; from 256 ns on, a bucket is at most a quarter
/// of its lower boundary wide.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// How many there were since the process began, for each bucket. None of them ever falls from
    /// one reading to a later one.
    pub counts: Vec<u64>,
    /// Rising; one more than there are counts.
    pub buckets: &'static [f64],
}

impl Histogram {
    /// How many values are counted, in all buckets.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
