//! One sampled allocation, and its record in the bucket table.

use super::{Born, Weight, lifetime, sweep};
use crate::postmortem;
use crate::primitives::{AtomicU64, Ordering};
use crate::stack::{self, Bucket, Change, CycleNumber, Kind, Stream, TABLE};

/// What a sampled block is remembered by from its allocation to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) bucket: Bucket,
    pub(crate) weight: Weight,
    /// The cycle of the heap profile that the allocation was counted in.
    pub(crate) cycle: CycleNumber,
    pub(crate) born: Born,
}

/// What each cell of a bucket of [`Kind::Heap`] counts. Weights are in units of 2^-16; bytes are
/// weighted.
pub(crate) mod cell {
    pub(crate) const MALLOCS: usize = 0;
    pub(crate) const MALLOC_WEIGHT: usize = 1;
    pub(crate) const MALLOC_BYTES: usize = 2;
    pub(crate) const FREES: usize = 3;
    pub(crate) const FREE_WEIGHT: usize = 4;
    pub(crate) const FREE_BYTES: usize = 5;
}

/// Sampled blocks whose free will not be noticed, because there was no room to note what they are.
static LOST_TRACK: AtomicU64 = AtomicU64::new(0);

impl Sample {
    /// An allocation that counts as `size` bytes, by the calling thread, here.
    pub(crate) fn take(size: usize, weight: Weight) -> Self {
        postmortem::leave_if_parents();
        Self {
            bucket: stack::site(Kind::Heap, size as u64),
            weight,
            cycle: CycleNumber::default(),
            born: Born::default(),
        }
    }

    /// Records the allocation. What is returned is to be remembered: it knows when that was.
    pub(crate) fn record_malloc(self, size: usize) -> Self {
        let bytes = self.weight.times(size);
        let amounts = [
            (cell::MALLOCS, 1),
            (cell::MALLOC_WEIGHT, self.weight.0),
            (cell::MALLOC_BYTES, bytes),
        ];
        let in_use = Change::More([self.weight.0, bytes]);
        let cycle = TABLE.add_heap(self.bucket, Stream::Program, &amounts, in_use);
        let born = Born::now();
        Self {
            cycle,
            born,
            ..self
        }
    }

    /// Records the free. `size` is that of the allocation.
    pub(crate) fn record_free(self, size: usize) {
        let stream = if sweep::is_inside() {
            Stream::Swept {
                allocated: self.cycle,
            }
        } else {
            Stream::Program
        };
        self.leave(stream, size);
        lifetime::ended(self, self.weight.times(size));
    }

    /// Records that another block has taken the place of this one: not a free in a sweep even
    /// within one, for what was in it lives on.
    pub(crate) fn record_replaced(self, size: usize) {
        self.leave(Stream::Program, size);
        lifetime::ended(self, self.weight.times(size));
    }

    /// It is no longer in use.
    fn leave(self, stream: Stream, size: usize) {
        let bytes = self.weight.times(size);
        let amounts = [
            (cell::FREES, 1),
            (cell::FREE_WEIGHT, self.weight.0),
            (cell::FREE_BYTES, bytes),
        ];
        let in_use = Change::Fewer([self.weight.0, bytes]);
        TABLE.add_heap(self.bucket, stream, &amounts, in_use);
    }

    /// Records that the free will not be noticed: the block is left out of what is in use, and
    /// counted as lost.
    pub(crate) fn lose_track(self, size: usize) {
        self.leave(Stream::Program, size);
        LOST_TRACK.fetch_add(1, Ordering::Relaxed);
        postmortem::count_untracked();
    }
}

/// Sampled blocks that are missing from what is in use, since the process began.
pub(crate) fn lost_track() -> u64 {
    LOST_TRACK.load(Ordering::Relaxed)
}
