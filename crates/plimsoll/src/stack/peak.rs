//! What was in use where, when most was.
//!
//! Of each bucket it is known what is in use now, and what was at the last peak. A peak is a
//! number, one higher than the one before; what a bucket had at a peak is noted by the first event
//! after it in that bucket, before that changes anything. So neither a new peak nor an event costs
//! more than some additions, however many buckets there are; and where nothing happened since, what
//! is in use is what was.
//!
//! With several threads at once, a bucket may be noted with an event too much or too few.

use crate::primitives::{AtomicU64, Ordering};

/// Objects, in the units of weights, and bytes.
type Amount = [u64; 2];

/// What is kept in a bucket. All zero is that of a new one.
#[repr(C)]
pub(super) struct InUse {
    now: [AtomicU64; 2],
    /// At the peak of that number.
    then: [AtomicU64; 2],
    peak: AtomicU64,
}

/// What is in use in all buckets, and the most that it was, in bytes.
static NOW: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

/// The number of the last peak.
static PEAK: AtomicU64 = AtomicU64::new(0);

/// The most that was in use in all buckets, in bytes.
pub(crate) fn most_in_use() -> u64 {
    MOST.load(Ordering::Relaxed)
}

impl InUse {
    pub(super) fn grows(&self, by: Amount) {
        self.note();
        for (now, by) in self.now.iter().zip(by) {
            now.fetch_add(by, Ordering::Relaxed);
        }
        let now = NOW.fetch_add(by[1], Ordering::Relaxed).wrapping_add(by[1]);
        if now > MOST.fetch_max(now, Ordering::Relaxed) {
            PEAK.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn shrinks(&self, by: Amount) {
        self.note();
        for (now, by) in self.now.iter().zip(by) {
            now.fetch_sub(by, Ordering::Relaxed);
        }
        NOW.fetch_sub(by[1], Ordering::Relaxed);
    }

    /// Notes what is in use, unless that was done since the last peak.
    fn note(&self) {
        let peak = PEAK.load(Ordering::Relaxed);
        if self.peak.swap(peak, Ordering::Relaxed) != peak {
            for (then, now) in self.then.iter().zip(&self.now) {
                then.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// What was in use at the last peak.
    pub(super) fn at_peak(&self) -> Amount {
        let noted = self.peak.load(Ordering::Relaxed) == PEAK.load(Ordering::Relaxed);
        let amount = if noted { &self.then } else { &self.now };
        [0, 1].map(|at: usize| amount[at].load(Ordering::Relaxed))
    }
}
