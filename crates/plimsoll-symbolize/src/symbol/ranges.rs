//! Address ranges with owners, in a table for binary search.

use std::ops::Range;

/// Disjoint address ranges, sorted, each with the index of its owner.
pub(super) struct Ranges(Vec<(Range<usize>, usize)>);

impl Ranges {
    /// Sorts `ranges`. Where two overlap, the range that begins first keeps the common part. If
    /// both begin at the same address, the earlier one in `ranges` keeps it.
    pub(super) fn new(ranges: impl Iterator<Item = (Range<usize>, usize)>) -> Self {
        let mut sorted: Vec<_> = ranges.collect();
        sorted.sort_by_key(|(range, _)| range.start);
        let mut covered = 0;
        sorted.retain_mut(|(range, _)| {
            range.start = range.start.max(covered);
            covered = covered.max(range.end);
            range.start < range.end
        });
        Self(sorted)
    }

    /// Returns the owner of the range that contains `address`.
    pub(super) fn owner_of(&self, address: usize) -> Option<usize> {
        self.owner_within(address..address.saturating_add(1))
    }

    /// Returns the owner of the first range that overlaps `wanted`.
    pub(super) fn owner_within(&self, wanted: Range<usize>) -> Option<usize> {
        let is_below = |(range, _): &(Range<usize>, usize)| range.end <= wanted.start;
        let behind = self.0.partition_point(is_below);
        let (range, owner) = self.0.get(behind)?;
        (range.start < wanted.end).then_some(*owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_first_range_that_contains_it() {
        let given = [
            (100..200, 0),
            (300..310, 1),
            (150..400, 2),
            (50..60, 3),
            (50..55, 4),
            (Range { start: 20, end: 10 }, 5),
            (400..400, 6),
        ];
        let ranges = Ranges::new(given.into_iter());
        for (address, owner) in [
            (0, None),
            (15, None),
            (49, None),
            (50, Some(3)),
            (59, Some(3)),
            (60, None),
            (100, Some(0)),
            (199, Some(0)),
            (200, Some(2)),
            (305, Some(2)),
            (399, Some(2)),
            (400, None),
            (usize::MAX, None),
        ] {
            assert_eq!(ranges.owner_of(address), owner, "{address}");
        }
        assert_eq!(ranges.owner_within(60..100), None);
        assert_eq!(ranges.owner_within(60..101), Some(0));
        assert_eq!(ranges.owner_within(199..500), Some(0));
        assert_eq!(ranges.owner_within(400..500), None);
        assert_eq!(Ranges::new([].into_iter()).owner_of(0), None);
    }
}
