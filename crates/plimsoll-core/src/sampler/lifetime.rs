//! Lifetimes of sampled blocks: for each site, the number of blocks by decade of lifetime.
//!
//! The free of such a block is a separate event, in a bucket of the block's stack and of its
//! lifetime's decade. So each stack has at most one bucket for each decade that was observed, and a
//! block only stores its allocation time.

use plimsoll_sys::os::clock;

use super::{Sample, WEIGHT_BITS};
use crate::stack::{Kind, TABLE};

/// The cells of a bucket of [`Kind::Lifetime`]. As for [`Kind::Heap`]; the last two count the temporary
/// ones of these blocks.
pub mod cell {
    /// Sampled blocks that were freed.
    pub const BLOCKS: usize = 0;
    /// Their weights.
    pub const WEIGHT: usize = 1;
    /// Their weighted bytes.
    pub const BYTES: usize = 2;
    /// Weights of the temporary ones.
    pub const TEMPORARY_WEIGHT: usize = 3;
    /// Weighted bytes of the temporary ones.
    pub const TEMPORARY_BYTES: usize = 4;
}

/// Lower limits of the decades, in nanoseconds; the last decade has no upper limit. One microsecond
/// is little more than the time that a sample takes.
static DECADES: [u64; 13] = [
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

/// The allocation time of a block, by a clock that is only compared with itself; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatedAt(pub u64);

impl AllocatedAt {
    pub(super) fn now() -> Self {
        Self(clock::now().max(1))
    }
}

/// Records the end of a block that counts as `bytes` bytes. For hooks.
pub(super) fn ended(sample: Sample, bytes: u64, is_temporary: bool) {
    if sample.born == AllocatedAt::default() {
        return;
    }
    let lived = clock::now().saturating_sub(sample.born.0);
    let decade = DECADES.partition_point(|&from| from <= lived) as u64;
    let bucket = TABLE.bucket_beside(sample.bucket, Kind::Lifetime, decade);
    let amounts = [
        (cell::BLOCKS, 1),
        (cell::WEIGHT, sample.weight.0),
        (cell::BYTES, bytes),
        (cell::TEMPORARY_WEIGHT, sample.weight.0),
        (cell::TEMPORARY_BYTES, bytes),
    ];
    let used = if is_temporary { 5 } else { 3 };
    TABLE.add(bucket, &amounts[..used]);
}

/// Returns the range of lifetimes, in nanoseconds, for the size of a bucket; the upper limit is
/// `None` for the last. Returns `None` for the overflow bucket, which contains lifetimes of any
/// length.
pub fn range(size: u64) -> Option<(u64, Option<u64>)> {
    let at = usize::try_from(size).ok()?.checked_sub(1)?;
    Some((*DECADES.get(at)?, DECADES.get(at + 1).copied()))
}

/// Returns the estimated number of blocks that a weight stands for.
pub fn blocks(weight: u64) -> i64 {
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
