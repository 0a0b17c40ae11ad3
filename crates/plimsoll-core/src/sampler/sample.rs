//! One sampled allocation, and its record in the bucket table.

use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::{AllocatedAt, Weight, lifetime, sweep};
use crate::stack::{self, Bucket, Change, CycleNumber, Kind, Stream, TABLE};
use plimsoll_ledger::postmortem_file;

/// The data of a sampled block, kept from its allocation to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The bucket of the allocation.
    pub bucket: Bucket,
    /// The number of blocks that it stands for.
    pub weight: Weight,
    /// The cycle of the heap profile that counted the allocation.
    pub cycle: CycleNumber,
    /// The time of the allocation.
    pub born: AllocatedAt,
}

/// The cells of a bucket of [`Kind::Heap`]. Weights are in units of 2^-16; bytes are weighted.
pub mod cell {
    /// Sampled allocations.
    pub const MALLOCS: usize = 0;
    /// Their weights.
    pub const MALLOC_WEIGHT: usize = 1;
    /// Their weighted bytes.
    pub const MALLOC_BYTES: usize = 2;
    /// Frees of sampled blocks.
    pub const FREES: usize = 3;
    /// Their weights.
    pub const FREE_WEIGHT: usize = 4;
    /// Their weighted bytes.
    pub const FREE_BYTES: usize = 5;
}

/// Sampled blocks whose free will not be noticed, because their sample could not be stored.
static LOST_TRACK: AtomicU64 = AtomicU64::new(0);

impl Sample {
    /// Takes a sample of an allocation that counts as `size` bytes, with the calling thread's
    /// stack.
    pub fn take(size: usize, weight: Weight) -> Self {
        postmortem_file::leave_if_parents();
        Self {
            bucket: stack::site(Kind::Heap, size as u64),
            weight,
            cycle: CycleNumber::default(),
            born: AllocatedAt::default(),
        }
    }

    /// Records the allocation. Returns the sample to store, which has the time of the allocation.
    pub fn record_malloc(self, size: usize) -> Self {
        let bytes = self.weight.times(size);
        let amounts = [
            (cell::MALLOCS, 1),
            (cell::MALLOC_WEIGHT, self.weight.0),
            (cell::MALLOC_BYTES, bytes),
        ];
        let in_use = Change::More([self.weight.0, bytes]);
        let cycle = TABLE.add_heap(self.bucket, Stream::Program, &amounts, in_use);
        let born = AllocatedAt::now();
        Self {
            cycle,
            born,
            ..self
        }
    }

    /// Records the free. `size` is the counted size of the allocation.
    pub fn record_free(self, size: usize, is_temporary: bool) {
        let stream = if sweep::is_inside() {
            Stream::Swept {
                allocated: self.cycle,
            }
        } else {
            Stream::Program
        };
        self.leave(stream, size);
        lifetime::ended(self, self.weight.times(size), is_temporary);
    }

    /// Records that another block replaces this one. The contents live on, so the block is not
    /// temporary, and within a sweep it does not count as a swept free.
    pub fn record_replaced(self, size: usize) {
        self.leave(Stream::Program, size);
        lifetime::ended(self, self.weight.times(size), false);
    }

    /// Subtracts the block from the memory in use.
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

    /// Records that the free will not be noticed: subtracts the block from the memory in use, and
    /// counts it as lost.
    pub fn untrack(self, size: usize) {
        self.leave(Stream::Program, size);
        LOST_TRACK.fetch_add(1, Ordering::Relaxed);
        postmortem_file::count_untracked();
    }
}

/// Returns the number of sampled blocks missing from the memory in use, since the process began.
pub fn lost_track() -> u64 {
    LOST_TRACK.load(Ordering::Relaxed)
}
