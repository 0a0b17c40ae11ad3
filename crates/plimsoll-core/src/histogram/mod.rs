//! Histograms of values.

mod times;

pub use times::{Counts, TimeCounts};

/// Values, counted in buckets: Go's `metrics.Float64Histogram`.
///
/// `counts[i]` is the number of values that were at least `buckets[i]` and less than `buckets[i +
/// 1]`. Boundaries stay the same as long as the process lives.
///
/// The boundaries of times are in seconds, the same 163 in each histogram, Go's: minus infinity, 0,
/// 64 ns, and so on up to 140,737 seconds (2^47 ns), and infinity. From 256 ns on, a bucket's width
/// is at most a quarter of its lower boundary.
///
/// ```
/// use plimsoll::metrics::{self, Sample, Value};
///
/// let mut sample = [Sample::new("/sched/latencies:seconds")];
/// metrics::read(&mut sample);
/// let Value::Float64Histogram(latencies) = &sample[0].value else { panic!("kinds never change") };
/// println!("{} values", latencies.total());
/// assert_eq!(latencies.buckets.len(), latencies.counts.len() + 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The number of values since the process began, for each bucket. No count ever falls from one
    /// reading to a later one.
    pub counts: Vec<u64>,
    /// Ascending boundaries; one more than there are counts.
    pub buckets: &'static [f64],
}

impl Histogram {
    /// Returns the number of values in all buckets.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
