//! Memory that the program maps directly, by caller, and the part of it that is still mapped.
//!
//! [`hooks`] interpose `mmap`, `munmap` and `mremap`; under `plimsoll run` also `sbrk` and `brk`.
//! Anonymous mappings are recorded with their length and the stack of the caller. `munmap` removes
//! any part of a record, wherever it begins and ends. So at any moment the records are the mapped
//! ranges, without the parts that were cut out.
//!
//! The event table counts the bytes mapped by each stack, and those that are gone: exact, and of
//! one instant. If no place is free for a record, the mapping is counted as gone immediately, and
//! as lost.

mod hooks;
mod table;

use std::ops::Range;

pub use hooks::{DataCaller, called, move_data_end};
use plimsoll_sys::hash::HashMap;
use plimsoll_sys::os::fork::{Table, join};
use plimsoll_sys::primitives::{AtomicU64, Ordering};
use table::Mappings;

use crate::alloc::interposition::{self, UnderlyingKind};
use crate::fork::Order;
use crate::stack::{Bucket, Kind, Record, TABLE};
use plimsoll_ledger::postmortem_file;

/// Records mappings from now on. Not for hooks.
pub fn start() {
    join(&FORK);
    hooks::start();
}

static FORK: Table = Table::new(Order::Mappings.rank(), || MAPPINGS.after_fork_in_child());

/// The cells of a bucket of [`Kind::Mapping`].
pub mod cell {
    /// Calls that mapped memory.
    pub const CALLS: usize = 0;
    /// Bytes that these calls mapped.
    pub const BYTES: usize = 1;
    /// Bytes of those that were unmapped.
    pub const BYTES_GONE: usize = 2;
    /// Ranges: one for each call, and one more where the middle of a range is unmapped.
    pub const PIECES: usize = 3;
    /// Ranges that were unmapped.
    pub const PIECES_GONE: usize = 4;
}

static MAPPINGS: Mappings = Mappings::new();

/// Mappings, or parts of them, that could not be recorded.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Counts a mapping, or a part of one, that cannot be recorded. For hooks.
fn count_lost() {
    LOST.fetch_add(1, Ordering::Relaxed);
    postmortem_file::count_lost_mapping();
}

/// Returns the number of mappings that are counted as gone although they may exist.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Returns whether mappings that this code makes are intercepted.
pub fn are_seen() -> bool {
    plimsoll_interpose::mappings::are_linked()
}

/// A range that the program has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its addresses.
    pub range: Range<usize>,
    /// Whether the range belongs to the program's allocator, as far as that is known.
    pub of_allocator: bool,
    /// The stack of the caller that mapped it, as return addresses, leaf first.
    pub caller: &'static [usize],
}

impl Mapped {
    /// Returns whether two ranges have the same owner and the same caller.
    pub fn is_like(&self, other: &Self) -> bool {
        self.of_allocator == other.of_allocator && self.caller == other.caller
    }
}

/// Returns the recorded ranges in the order of addresses, without overlap. Not for hooks.
///
/// A range belongs to the allocator if the allocator mapped it, as far as that is known. If `block`
/// is a block of the allocator, ranges mapped at the same site as the block's memory belong to the
/// allocator too. So do ranges that the code of an allocator under the `malloc` interposition mapped
/// outside of calls, such as in its constructor.
pub fn all(block: Option<usize>) -> Vec<Mapped> {
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
    let mut by_code = HashMap::default();
    let mut is_of_its_code = |bucket: Bucket| {
        let known = by_code.entry(bucket.0);
        *known.or_insert_with(|| site(bucket).is_some_and(|&site| is_code_of_allocator(site)))
    };
    let all = all.into_iter().map(|(range, note)| Mapped {
        range,
        of_allocator: note.of_allocator
            || is_of_allocator(note.bucket)
            || is_of_its_code(note.bucket),
        caller: TABLE.stack_of(note.bucket),
    });
    disjoint(all.collect())
}

/// Returns whether an address lies in the code of the allocator under the `malloc` interposition.
/// False for the C library's, whose own mappings are not intercepted.
fn is_code_of_allocator(address: usize) -> bool {
    interposition::registered().is_some_and(|library| {
        library.underlying_kind() == UnderlyingKind::Other
            && library.is_allocators(address as *const std::ffi::c_void)
    })
}

/// Sorts ranges and removes overlaps. Two records overlap if one was replacing the other while they
/// were read, or after an unmapping that was not intercepted.
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

/// Visits the counts by stack, all of one instant.
pub fn read(visit: impl FnMut(Record)) {
    TABLE.read(Kind::Mapping, visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_second_of_two_overlapping_ranges_remains() {
        let mapped = |range: Range<usize>| Mapped {
            range,
            of_allocator: false,
            caller: &[],
        };
        let all = [40..50, 10..20, 15..30, 16..18].map(mapped);
        let ranges = disjoint(all.to_vec()).into_iter();
        let ranges: Vec<_> = ranges.map(|mapped| mapped.range).collect();
        assert_eq!(ranges, [10..20, 20..30, 40..50]);
    }
}
