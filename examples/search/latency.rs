//! Latencies of requests, in memory of constant size.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Each power of two is divided into this many buckets, so a quantile is exact to a sixteenth.
const PER_OCTAVE: u64 = 16;
const BUCKETS: usize = 976;

/// A histogram of durations to which any number of threads add.
///
/// Below 16 ns, each value has a bucket; above, a bucket is a sixteenth of its power of two. No
/// reader depends on the order of the counts, so all orderings are relaxed.
pub struct Latencies {
    counts: Box<[AtomicU64]>,
}

impl Latencies {
    pub fn new() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn record(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)].fetch_add(1, Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Returns the latency that the given share of the requests, from 0 to 1, did not exceed,
    /// rounded up to the end of its bucket. `None` if there were no requests.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let counts: Vec<u64> = self
            .counts
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        let total: u64 = counts.iter().sum();
        let rank = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let bucket = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_nanos(last_of(bucket)))
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PER_OCTAVE {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - PER_OCTAVE.ilog2();
    // The leading bit stays, so that each octave begins where the previous one ends.
    (u64::from(shift) * PER_OCTAVE + (nanos >> shift)) as usize
}

/// Returns the largest number of nanoseconds in a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let leading = bucket % PER_OCTAVE + PER_OCTAVE;
    (leading << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap_up_to_the_largest_number() {
        let mut first = 0;
        for expected in 0..BUCKETS {
            assert_eq!(bucket(first), expected);
            let last = last_of(expected);
            assert_eq!(bucket(last), expected);
            assert!(last - first <= first / PER_OCTAVE, "{first} to {last}");
            first = last.wrapping_add(1);
        }
        assert_eq!(first, 0, "the last bucket ends with the largest number");
    }

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.count(), 1000);
        for (share, micros) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = latencies.quantile(share).unwrap().as_secs_f64() * 1e6;
            assert!(
                (micros..=micros * 17.0 / 16.0).contains(&found),
                "{share}: {found}"
            );
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(Latencies::new().quantile(0.5), None);
    }
}
