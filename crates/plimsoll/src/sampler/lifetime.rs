//! How long sampled blocks have lived: of each site, how many of them for how long, by decades.
//!
//! When such a block is freed, that is an event of its own, in a bucket of the block's stack and of
//! the decade that its life falls into. So there is no more than one bucket for each of those that
//! were seen, and nothing is kept for a block but when it was made.

use super::{Sample, WEIGHT_BITS};
use crate::os::clock;
use crate::stack::{Kind, TABLE};

/// What each cell of a bucket of [`Kind::Lifetime`] counts. As for [`Kind::Heap`].
pub(crate) mod cell {
    pub(crate) const BLOCKS: usize = 0;
    pub(crate) const WEIGHT: usize = 1;
    pub(crate) const BYTES: usize = 2;
}

/// From how many nanoseconds on a life is of a decade; the last has no end. One microsecond is
/// little more than what a sample takes itself.
const DECADES: [u64; 13] = [
    0,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
    10_000_000_000_000,
    100_000_000_000_000,
];

/// When a block was made, by a clock that is compared with itself alone; 0 if that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Born(pub(crate) u64);

impl Born {
    pub(super) fn now() -> Self {
        Self(clock::now().max(1))
    }
}

/// A block, which counts as that many bytes, is no more. For hooks.
pub(super) fn ended(sample: Sample, bytes: u64) {
    if sample.born == Born::default() {
        return;
    }
    let lived = clock::now().saturating_sub(sample.born.0);
    let decade = DECADES.partition_point(|&from| from <= lived) as u64;
    let bucket = TABLE.bucket_beside(sample.bucket, Kind::Lifetime, decade);
    let amounts = [
        (cell::BLOCKS, 1),
        (cell::WEIGHT, sample.weight.0),
        (cell::BYTES, bytes),
    ];
    TABLE.add(bucket, &amounts);
}

/// The range of lives, in nanoseconds, that the size of a bucket stands for; the second is `None`
/// for no end. `None` for the overflow bucket, which has lives of any length.
pub(crate) fn range(size: u64) -> Option<(u64, Option<u64>)> {
    let at = usize::try_from(size).ok()?.checked_sub(1)?;
    Some((*DECADES.get(at)?, DECADES.get(at + 1).copied()))
}

/// The estimated number of blocks that a weight stands for.
pub(crate) fn blocks(weight: u64) -> i64 {
    (weight >> WEIGHT_BITS) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_life_is_in_one_decade() {
        assert_eq!(range(0), None);
        assert_eq!(range(1), Some((0, Some(1_000))));
        assert_eq!(range(13), Some((100_000_000_000_000, None)));
        assert_eq!(range(14), None);
        let mut next = 0;
        for size in 1..=DECADES.len() as u64 {
            let (from, to) = range(size).unwrap();
            assert_eq!(from, next);
            next = to.unwrap_or(u64::MAX);
        }
        assert_eq!(next, u64::MAX);
    }
}
