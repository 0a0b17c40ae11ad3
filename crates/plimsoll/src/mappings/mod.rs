//! Memory that the program maps by itself: who mapped it, and what of it is still there.
//!
//! The door is [`called`], in place of `mmap`, `munmap` and `mremap`. Private
//! anonymous mappings are recorded, each with the stack of who made it, and so many bytes as it is
//! long; what is unmapped, wherever that begins and ends, is taken out again. So what is recorded
//! is what there is, at any moment, and a part of it that was cut out is no longer the program's.
//!
//! What each stack has mapped, and how much of it is gone, is counted in the table of stacks: all
//! of it is exact, and of one instant. Where there is no room for a record, the mapping is counted
//! as gone at once, and as lost.

mod door;
mod table;

use std::ops::Range;

use crate::primitives::{AtomicU64, Ordering};
use crate::stack::{Bucket, Kind, Record, TABLE};
use table::Mappings;

pub(crate) use door::called;

/// What each cell of a bucket of [`Kind::Mapping`] counts.
pub(crate) mod cell {
    /// Calls that mapped something.
    pub(crate) const CALLS: usize = 0;
    pub(crate) const BYTES: usize = 1;
    pub(crate) const BYTES_GONE: usize = 2;
    /// Ranges that there are: one for each call, and one more where the middle of one is unmapped.
    pub(crate) const PIECES: usize = 3;
    pub(crate) const PIECES_GONE: usize = 4;
}

static MAPPINGS: Mappings = Mappings::new();

/// Mappings, or parts, that could not be recorded.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Mappings that are counted as gone although they may be there.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Whether mappings that this code makes are seen.
pub(crate) fn are_seen() -> bool {
    plimsoll_interpose::mappings::are_linked()
}

/// A range that the program has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) range: Range<usize>,
    /// Whether the program's allocator has it, as far as that is known.
    pub(crate) of_allocator: bool,
}

/// What is recorded, in the order of addresses; no two overlap. Not for hooks.
///
/// The allocator has what was mapped while it was called, where that is known; and what was mapped
/// at the same place as the memory that `block` is in, which is one of its.
pub(crate) fn all(block: Option<usize>) -> Vec<Mapped> {
    let mut all = Vec::new();
    MAPPINGS.for_each(|range, note| all.push((range, note)));
    let has_block = |range: &Range<usize>| block.is_some_and(|block| range.contains(&block));
    let of_block = all.iter().find(|(range, _)| has_block(range));
    let of_block = of_block.map(|(_, note)| note.bucket);
    let site = |bucket| TABLE.stack_of(bucket).first();
    let is_of_allocator = |bucket: Bucket| {
        of_block.is_some_and(|of_block| {
            bucket == of_block || site(bucket).is_some() && site(bucket) == site(of_block)
        })
    };
    let all = all.into_iter().map(|(range, note)| Mapped {
        range,
        of_allocator: note.of_allocator || is_of_allocator(note.bucket),
    });
    disjoint(all.collect())
}

/// Two that overlap were met while one was taking the place of the other, or one was unmapped by
/// nobody who is seen.
fn disjoint(mut all: Vec<Mapped>) -> Vec<Mapped> {
    all.sort_by_key(|mapped| mapped.range.start);
    let mut end = 0;
    all.retain_mut(|mapped| {
        mapped.range.start = mapped.range.start.max(end);
        end = end.max(mapped.range.end);
        !mapped.range.is_empty()
    });
    all
}

/// What was counted, by stack; all at one instant.
pub(crate) fn read(visit: impl FnMut(Record)) {
    TABLE.read(Kind::Mapping, visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_overlap_the_rest_of_the_second_is_left() {
        let mapped = |range: Range<usize>| Mapped {
            range,
            of_allocator: false,
        };
        let all = [40..50, 10..20, 15..30, 16..18].map(mapped);
        let ranges = disjoint(all.to_vec()).into_iter();
        let ranges: Vec<_> = ranges.map(|mapped| mapped.range).collect();
        assert_eq!(ranges, [10..20, 20..30, 40..50]);
    }
}
