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
    pub(super) now: [AtomicU64; 2],
    /// At the peak of that number.
    pub(super) then: [AtomicU64; 2],
    pub(super) peak: AtomicU64,
}

/// What is known of all buckets together. All zero in the beginning.
#[repr(C)]
pub(super) struct Peak {
    /// What is in use in all buckets, and the most that it was, in bytes.
    now: AtomicU64,
    most: AtomicU64,
    /// The number of the last peak.
    pub(super) number: AtomicU64,
}

impl Peak {
    /// The most that was in use in all buckets, in bytes.
    #[cfg(feature = "preload")]
    pub(super) fn most_in_use(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Makes now the last peak.
    #[cfg(feature = "preload")]
    pub(super) fn restart(&self) {
        let now = self.now.load(Ordering::Relaxed);
        self.most.store(now, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Relaxed);
    }
}

impl InUse {
    pub(super) fn grows(&self, peak: &Peak, by: Amount) {
        self.note(peak);
        for (now, by) in self.now.iter().zip(by) {
            now.fetch_add(by, Ordering::Relaxed);
        }
        let now = peak.now.fetch_add(by[1], Ordering::Relaxed);
        let now = now.wrapping_add(by[1]);
        if now > peak.most.load(Ordering::Relaxed)
            && now > peak.most.fetch_max(now, Ordering::Relaxed)
        {
            peak.number.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn shrinks(&self, peak: &Peak, by: Amount) {
        self.note(peak);
        for (now, by) in self.now.iter().zip(by) {
            now.fetch_sub(by, Ordering::Relaxed);
        }
        peak.now.fetch_sub(by[1], Ordering::Relaxed);
    }

    /// Notes what is in use, unless that was done since the last peak.
    fn note(&self, peak: &Peak) {
        let peak = peak.number.load(Ordering::Relaxed);
        if self.peak.load(Ordering::Relaxed) != peak
            && self.peak.swap(peak, Ordering::Relaxed) != peak
        {
            for (then, now) in self.then.iter().zip(&self.now) {
                then.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// What was in use at the last peak.
    pub(super) fn at_peak(&self, peak: &Peak) -> Amount {
        let noted = self.peak.load(Ordering::Relaxed) == peak.number.load(Ordering::Relaxed);
        let amount = if noted { &self.then } else { &self.now };
        [0, 1].map(|at: usize| amount[at].load(Ordering::Relaxed))
    }
}
