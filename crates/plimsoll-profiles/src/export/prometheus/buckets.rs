//! Go's histograms with fewer buckets: Go's 162 buckets of a time are too many series for a server
//! that stores each bucket as one.
//!
//! The remaining boundaries are some of Go's. Each count is thus a sum of Go's counts, and exact. A
//! bucket here ends with its largest value; Go's ends with the smallest value beyond it. Times are
//! whole nanoseconds and sizes are whole bytes, so the former is the latter less one.

/// A histogram in Prometheus' form.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// The largest value in each bucket, rising, with the number of values up to it. The last is
    /// infinity, with the number of all values.
    pub up_to: Vec<(f64, u64)>,
    /// The estimated sum of all values. Each counts as the middle of Go's bucket; values below 0
    /// count as 0, and those beyond the last boundary as that boundary. The estimate never falls
    /// while the counts do not.
    pub(crate) estimated_sum: f64,
}

impl Buckets {
    /// Returns the number of all values.
    pub fn count(&self) -> u64 {
        self.up_to.last().map_or(0, |&(_, count)| count)
    }

    /// Reduces Go's buckets. `counts[i]` is the number of values from `boundaries[i]` up to, but
    /// excluding, `boundaries[i + 1]`, in `unit`.
    pub(crate) fn new(counts: &[u64], boundaries: &[f64], unit: &str) -> Self {
        let mut up_to = Vec::new();
        let (mut total, mut sum) = (0, 0.0);
        for (&count, ends) in counts.iter().zip(boundaries.windows(2)) {
            let (begin, end) = (ends[0], ends[1]);
            total += count;
            sum += count as f64 * middle(begin, end);
            if let Some(last) = kept(end, unit) {
                up_to.push((last, total));
            }
        }
        up_to.push((f64::INFINITY, total));
        Self {
            up_to,
            estimated_sum: sum,
        }
    }
}

fn middle(begin: f64, end: f64) -> f64 {
    match (begin.is_finite(), end.is_finite()) {
        (true, true) => (begin + end) / 2.0,
        (true, false) => begin,
        _ => 0.0,
    }
}

/// Returns the last value before a boundary, if that boundary is kept.
fn kept(boundary: f64, unit: &str) -> Option<f64> {
    if !(1e-9..1e15).contains(&boundary) {
        return None;
    }
    if is_time(unit) {
        // Powers of four from 256 ns to 275 seconds.
        let nanoseconds = (boundary * 1e9).round() as u64;
        let power = nanoseconds.ilog2();
        let wanted = nanoseconds.is_power_of_two() && power % 2 == 0 && (8..=38).contains(&power);
        wanted.then_some((nanoseconds - 1) as f64 / 1e9)
    } else {
        // Powers of two from 8 on. Go's boundaries are one above its sizes.
        let last = (boundary as u64).checked_sub(1)?;
        (last >= 8 && last.is_power_of_two()).then_some(last as f64)
    }
}

fn is_time(unit: &str) -> bool {
    unit == "seconds"
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 8] = [1.0, 9.0, 17.0, 25.0, 33.0, 49.0, 65.0, f64::INFINITY];

    #[test]
    fn counts_are_sums_of_counts_up_to_each_boundary_that_is_left() {
        let buckets = Buckets::new(&[1, 2, 4, 8, 16, 32, 64], &SIZES, "bytes");
        let expected = [
            (8.0, 1),
            (16.0, 3),
            (32.0, 15),
            (64.0, 63),
            (f64::INFINITY, 127),
        ];
        assert_eq!(buckets.up_to, expected);
        assert_eq!(buckets.count(), 127);
        let sum = 5.0 + 2.0 * 13.0 + 4.0 * 21.0 + 8.0 * 29.0 + 16.0 * 41.0 + 32.0 * 57.0;
        assert_eq!(buckets.estimated_sum, sum + 64.0 * 65.0);
    }

    #[test]
    fn times_have_sixteen_boundaries_and_infinity() {
        let histogram = plimsoll_tasks::task::metrics().poll_duration;
        let mut counts = vec![0; histogram.counts.len()];
        for at in [0, 1, 4, 5, 20, 60, 161] {
            counts[at] = 1 + at as u64;
        }
        let buckets = Buckets::new(&counts, histogram.buckets, "seconds");
        assert_eq!(buckets.up_to.len(), 17);
        assert!(
            buckets
                .up_to
                .is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1)
        );
        assert_eq!(buckets.up_to[0], (255e-9, 1 + 2 + 5), "below 0 is below");
        assert_eq!(buckets.up_to[15].0, ((1u64 << 38) - 1) as f64 / 1e9);
        assert_eq!(buckets.count(), counts.iter().sum::<u64>());
        for &(last, count) in &buckets.up_to[..16] {
            let below = counts.iter().zip(&histogram.buckets[1..]);
            let below = below.filter(|(_, end)| **end <= last + 1.5e-9);
            assert_eq!(below.map(|(count, _)| count).sum::<u64>(), count, "{last}");
        }
    }

    #[test]
    fn unusual_buckets_are_accepted() {
        for unit in ["seconds", "bytes", ""] {
            for boundaries in [
                &[][..],
                &[f64::NEG_INFINITY, f64::INFINITY],
                &[-1.0, f64::NAN, 1e300],
                &[0.0, 0.5, 1.0, 1.5],
                &[f64::NAN; 3],
            ] {
                let buckets = Buckets::new(&[3, 4], boundaries, unit);
                assert!(buckets.estimated_sum.is_finite() && !buckets.up_to.is_empty());
            }
        }
    }
}
