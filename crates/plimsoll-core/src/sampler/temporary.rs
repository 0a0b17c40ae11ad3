//! Recognizes temporary blocks: freed by their thread before its next allocation.
//!
//! Every allocation of a thread is charged to the distance to its next sample. Each thread notes
//! the last block that was sampled, and the distance behind it. The block is temporary if its
//! thread frees it while the distance is the same. That is exact, not likely:
//!
//! - Between two decisions of the sampler, charges only lower the distance. A request that fails
//!   may be undone. So an equal distance means that nothing was charged.
//! - Each decision of the sampler on an allocation forgets the note. So a later distance that is
//!   equal by chance is never compared.
//! - A block that another thread freed may return to this one at the same address. It has another
//!   time of allocation.
//!
//! The fast path takes no part in this. Requests of zero bytes charge nothing, so they do not end
//! the time of a temporary block, unless the rate is 1.

use std::cell::Cell;

use super::{AllocatedAt, Sample};

/// A thread's last sampled block. Plain cells: only the thread itself reads and writes them. A signal
/// handler that allocates between two writes replaces or forgets the note, which loses one block.
pub struct LastSample {
    /// The address of the block; 0 if an allocation or the free followed.
    block: Cell<usize>,
    born: Cell<AllocatedAt>,
    /// The thread's distance behind the allocation.
    distance: Cell<i64>,
}

impl LastSample {
    /// Returns a note of no block.
    pub const fn new() -> Self {
        Self {
            block: Cell::new(0),
            born: Cell::new(AllocatedAt(0)),
            distance: Cell::new(0),
        }
    }

    /// Notes the block of a recorded sample, at the thread's distance behind it.
    pub fn note(&self, block: *mut u8, sample: Sample, distance: i64) {
        self.block.set(0);
        self.born.set(sample.born);
        self.distance.set(distance);
        self.block.set(block as usize);
    }

    /// Forgets the block: another allocation reached the sampler.
    pub fn forget(&self) {
        self.block.set(0);
    }

    /// Adopts a distance that was drawn anew without an allocation. `before` is the previous one.
    pub fn redrawn(&self, before: i64, distance: i64) {
        if self.distance.get() == before {
            self.distance.set(distance);
        } else {
            self.forget();
        }
    }

    /// Returns whether a sampled block is temporary, if the thread frees it now, at that distance.
    /// Forgets the block.
    pub fn is_temporary(&self, block: *mut u8, sample: Sample, distance: i64) -> bool {
        if self.block.get() != block as usize || self.born.get() != sample.born {
            return false;
        }
        self.forget();
        self.distance.get() == distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Sampler, Weight};
    use crate::stack::{Bucket, CycleNumber};

    fn sample(born: u64) -> Sample {
        Sample {
            bucket: Bucket(1),
            weight: Weight::ONE,
            cycle: CycleNumber::default(),
            born: AllocatedAt(born),
        }
    }

    fn block(address: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(address)
    }

    #[test]
    fn a_block_is_temporary_once_and_only_at_the_same_distance() {
        let last = LastSample::new();
        assert!(!last.is_temporary(block(64), sample(5), 0), "no note");
        last.note(block(64), sample(5), 100);
        assert!(last.is_temporary(block(64), sample(5), 100));
        assert!(!last.is_temporary(block(64), sample(5), 100), "once");
        last.note(block(64), sample(5), 100);
        assert!(!last.is_temporary(block(64), sample(5), 99));
        last.note(block(64), sample(5), 100);
        last.forget();
        assert!(!last.is_temporary(block(64), sample(5), 100));
    }

    #[test]
    fn another_block_at_the_address_is_not_temporary() {
        let last = LastSample::new();
        last.note(block(64), sample(5), 100);
        assert!(!last.is_temporary(block(64), sample(6), 100));
        assert!(!last.is_temporary(block(128), sample(5), 100));
        assert!(
            last.is_temporary(block(64), sample(5), 100),
            "the others do not end its time"
        );
    }

    #[test]
    fn a_distance_drawn_anew_keeps_a_current_note_only() {
        let last = LastSample::new();
        last.note(block(64), sample(5), 100);
        last.redrawn(100, 70);
        assert!(last.is_temporary(block(64), sample(5), 70));
        last.note(block(64), sample(5), 100);
        last.redrawn(90, 100);
        assert!(!last.is_temporary(block(64), sample(5), 100));
    }

    /// The caller's countdown repeats when the distance is longer than a stretch, or by chance: only
    /// the decision between shows the allocations.
    #[test]
    fn a_countdown_that_repeats_is_not_compared() {
        let sampler = Sampler::new();
        let mut repeated = 0;
        for seed in 0..100 {
            let rate = 64 << 20;
            let first = sampler.start(seed, rate);
            let last = LastSample::new();
            last.note(block(64), sample(5), first);
            let decision = sampler.decide(0, first as usize, rate);
            last.forget();
            repeated += u32::from(decision.weight.is_none() && decision.countdown == first);
            assert!(!last.is_temporary(block(64), sample(5), decision.countdown));
        }
        assert!(repeated > 90, "{repeated} of 100");
    }
}
