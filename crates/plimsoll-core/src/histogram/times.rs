//! Histograms of durations, with the buckets of Go's runtime.
//!
//! From 0 on, there are four buckets of 64 ns each; after that, four for each power of two, up to
//! 2^47 ns, which is 39 hours. One bucket each holds the times below and above that range. So a
//! time from 256 ns on is known to a quarter of itself or better, and recording it takes a few
//! shifts and one addition.
//!
//! Threads add to different stripes, to avoid contention for cache lines, and counts are never
//! reduced. A reader sums the stripes, so no bucket's count falls from one reading to a later one.

use plimsoll_sys::os::thread_place;
use plimsoll_sys::primitives::{AtomicBool, AtomicU64, Ordering};

use super::Histogram;

/// Powers of two with four buckets each; the first stands for all below 2^8.
const POWERS: usize = 40;
/// Buckets for each power of two.
const PARTS: usize = 4;
/// Times below this power of two are in the first four buckets.
const MIN_POWER: u32 = 8;
/// All buckets, including one below 0 and one beyond the largest power.
const COUNTS: usize = POWERS * PARTS + 2;

/// The boundaries of the buckets, in seconds.
static BOUNDARIES: [f64; COUNTS + 1] = boundaries();

/// A recorder of times. Hooks may record times: that does not allocate, lock or wait.
pub struct TimeCounts<const STRIPES: usize = 8> {
    stripes: [Stripe; STRIPES],
}

#[repr(align(64))]
struct Stripe {
    counts: [AtomicU64; COUNTS],
    /// Whether a time was ever counted here: readers skip the other stripes.
    is_used: AtomicBool,
}

impl<const STRIPES: usize> TimeCounts<STRIPES> {
    /// Returns counts of nothing yet.
    pub const fn new() -> Self {
        Self {
            stripes: [const {
                Stripe {
                    counts: [const { AtomicU64::new(0) }; COUNTS],
                    is_used: AtomicBool::new(false),
                }
            }; STRIPES],
        }
    }

    /// Counts a time. A negative one, from the difference of two clocks, has a bucket, too.
    pub fn record(&self, nanoseconds: i64) {
        let stripe = &self.stripes[thread_place(STRIPES)];
        stripe.counts[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        if !stripe.is_used.load(Ordering::Relaxed) {
            stripe.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Returns all times recorded so far. Times recorded meanwhile may be included or not.
    pub fn read(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.read_into(&mut histogram);
        histogram
    }

    /// Does the same, and reuses the memory of a histogram.
    pub fn read_into(&self, histogram: &mut Histogram) {
        self.counts().fill(histogram);
    }

    /// Returns the counts alone.
    pub fn counts(&self) -> Counts {
        let mut counts = [0; COUNTS];
        let used = |stripe: &&Stripe| stripe.is_used.load(Ordering::Relaxed);
        for stripe in self.stripes.iter().filter(used) {
            for (sum, count) in counts.iter_mut().zip(&stripe.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        Counts(counts)
    }
}

/// The counts read from [`TimeCounts`].
pub struct Counts([u64; COUNTS]);

impl Counts {
    /// Replaces the contents of a histogram with these counts, and reuses its memory.
    pub fn fill(&self, histogram: &mut Histogram) {
        histogram.counts.clear();
        histogram.counts.extend_from_slice(&self.0);
        histogram.buckets = &BOUNDARIES;
    }
}

/// Returns the index of the bucket of a time.
fn bucket(nanoseconds: i64) -> usize {
    let Ok(time) = u64::try_from(nanoseconds) else {
        return 0;
    };
    let power = (time | 1 << (MIN_POWER - 1)).ilog2();
    // The two bits below the highest one; in the first four buckets, the two highest bits.
    let (row, part) = match power.checked_sub(MIN_POWER) {
        None => (0, time >> (MIN_POWER - 2)),
        Some(above) => (above as usize + 1, time >> (power - 2) & 3),
    };
    if row >= POWERS {
        COUNTS - 1
    } else {
        1 + row * PARTS + part as usize
    }
}

/// Returns the first nanosecond of a bucket; bucket 0 begins at 0.
const fn first_of(bucket: usize) -> u64 {
    let (row, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    if row == 0 {
        part << (MIN_POWER - 2)
    } else {
        (4 + part) << (row as u32 - 1 + MIN_POWER - 2)
    }
}

const fn boundaries() -> [f64; COUNTS + 1] {
    let mut boundaries = [f64::INFINITY; COUNTS + 1];
    boundaries[0] = f64::NEG_INFINITY;
    let mut bucket = 0;
    // Includes the first boundary after the last bucket.
    while bucket <= POWERS * PARTS {
        boundaries[1 + bucket] = first_of(bucket) as f64 / 1e9;
        bucket += 1;
    }
    boundaries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The boundaries from the tests of Go's runtime.
    #[test]
    fn the_boundaries_are_those_of_go() {
        let known: [(usize, u64); 19] = [
            (1, 0),
            (2, 0x40),
            (3, 0x80),
            (4, 0xc0),
            (5, 0x100),
            (6, 0x140),
            (7, 0x180),
            (8, 0x1c0),
            (9, 0x200),
            (10, 0x280),
            (11, 0x300),
            (12, 0x380),
            (13, 0x400),
            (15, 0x600),
            (81, 0x800_0000),
            (82, 0xa00_0000),
            (108, 0x3_8000_0000),
            (160, 7 << 44),
            (161, 1 << 47),
        ];
        let read = TimeCounts::<1>::new().read();
        assert_eq!((read.buckets.len(), read.counts.len()), (163, 162));
        assert_eq!(read.buckets[0], f64::NEG_INFINITY);
        assert_eq!(read.buckets[162], f64::INFINITY);
        for (at, nanoseconds) in known {
            assert_eq!(read.buckets[at], nanoseconds as f64 / 1e9, "boundary {at}");
        }
        assert!(read.buckets.is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn a_time_is_counted_between_its_boundaries() {
        let counts = TimeCounts::<8>::new();
        for bucket in 0..POWERS * PARTS {
            let (first, next) = (first_of(bucket) as i64, first_of(bucket + 1) as i64);
            for _ in 0..bucket {
                counts.record(first);
            }
            counts.record(next - 1);
        }
        for time in [-1, i64::MIN, i64::MIN + 1] {
            counts.record(time);
        }
        for time in [1 << 47, i64::MAX] {
            counts.record(time);
        }
        let read = counts.read();
        assert_eq!((read.counts[0], read.counts[161]), (3, 2));
        for bucket in 0..POWERS * PARTS {
            assert_eq!(
                read.counts[1 + bucket],
                bucket as u64 + 1,
                "bucket {bucket}"
            );
        }
        assert_eq!(
            read.total(),
            (0..160).map(|count| count + 1).sum::<u64>() + 5
        );
    }

    #[test]
    fn eight_threads_lose_no_record_and_no_count_falls() {
        const EACH: u64 = 100_000;
        let counts = TimeCounts::<8>::new();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8u64)
                .map(|thread| {
                    let counts = &counts;
                    scope.spawn(move || {
                        for time in 0..EACH {
                            counts.record((time << (thread * 4)) as i64);
                        }
                    })
                })
                .collect();
            let mut before = counts.read();
            while !writers.iter().all(|writer| writer.is_finished()) {
                let now = counts.read();
                let pairs = before.counts.iter().zip(&now.counts);
                assert!(pairs.into_iter().all(|(before, now)| before <= now));
                before = now;
            }
        });
        let read = counts.read();
        assert_eq!(read.total(), 8 * EACH);
        let mut expected = vec![0; COUNTS];
        for thread in 0..8u64 {
            for time in 0..EACH {
                let seconds = (time << (thread * 4)) as f64 / 1e9;
                let above = read
                    .buckets
                    .partition_point(|&boundary| boundary <= seconds);
                expected[above - 1] += 1;
            }
        }
        assert_eq!(read.counts, expected);
    }
}
