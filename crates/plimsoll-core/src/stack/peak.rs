//! The memory in use at the peak, by bucket.
//!
//! Each bucket holds its current memory in use, and its memory in use at the last peak. Peaks are
//! numbered. The first event in a bucket after a peak notes the values of the peak before it
//! changes them. A new peak or an event therefore costs only some additions, independent of the
//! number of buckets. In a bucket without events since the peak, the current values are those of
//! the peak.
//!
//! With several threads at once, the noted values of a bucket may include one event too many or too
//! few.

use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// Objects, in the units of weights, and bytes.
type Amount = [u64; 2];

/// The memory in use of a bucket. Zeros are the state of a new one.
#[repr(C)]
pub(super) struct InUse {
    pub(super) now: [AtomicU64; 2],
    /// The values at the peak with the number `peak`.
    pub(super) then: [AtomicU64; 2],
    pub(super) peak: AtomicU64,
}

/// The state common to all buckets. Initially all zero.
#[repr(C)]
pub(super) struct Peak {
    /// The memory in use in all buckets, now and at most, in bytes.
    now: AtomicU64,
    most: AtomicU64,
    /// The number of the last peak.
    pub(super) number: AtomicU64,
}

impl Peak {
    /// Returns the maximum memory in use in all buckets, in bytes.
    pub(super) fn most_in_use(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Makes the current state the last peak.
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

    /// Notes the current values, unless that happened since the last peak.
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

    /// Returns the current values.
    pub(super) fn now(&self) -> Amount {
        self.now.each_ref().map(|now| now.load(Ordering::Relaxed))
    }

    /// Returns the values at the last peak.
    pub(super) fn at_peak(&self, peak: &Peak) -> Amount {
        let noted = self.peak.load(Ordering::Relaxed) == peak.number.load(Ordering::Relaxed);
        let amount = if noted { &self.then } else { &self.now };
        [0, 1].map(|at: usize| amount[at].load(Ordering::Relaxed))
    }
}
