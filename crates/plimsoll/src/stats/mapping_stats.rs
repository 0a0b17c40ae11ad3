//! Memory that the program maps by itself.

use crate::mappings::{self, cell};
use crate::own;

/// What the program has mapped by calls of its own (`mmap`, `mremap`), privately and of no file,
/// since the process began: not what the C library maps for `malloc`, stacks and libraries. Exact,
/// but for [`LostEvents::mappings`](crate::profile::LostEvents::mappings); all of one instant. All
/// 0 without the feature `mmap`.
///
/// Addresses are counted, in whole pages, whether they are touched or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingStats {
    /// Calls that mapped something, or had it grow or move. A count.
    pub calls: u64,
    /// Bytes that those mapped.
    pub mapped_bytes: u64,
    /// Bytes of those that were unmapped, replaced, or moved away from.
    pub unmapped_bytes: u64,
    /// Mappings that there are. One of which the middle was unmapped is two. A count.
    pub mappings: u64,
}

impl MappingStats {
    /// Bytes that are mapped now.
    pub fn bytes(&self) -> u64 {
        self.mapped_bytes.saturating_sub(self.unmapped_bytes)
    }
}

/// Reads the sums. Takes as long as reading the profile `mmap`: some microseconds.
pub fn mapping_stats() -> MappingStats {
    let _own = own::scope();
    let mut stats = MappingStats::default();
    mappings::read(|record| {
        stats.calls += record.cells[cell::CALLS];
        stats.mapped_bytes += record.cells[cell::BYTES];
        stats.unmapped_bytes += record.cells[cell::BYTES_GONE];
        let pieces = record.cells[cell::PIECES].wrapping_sub(record.cells[cell::PIECES_GONE]);
        stats.mappings = stats.mappings.wrapping_add(pieces);
    });
    stats
}
