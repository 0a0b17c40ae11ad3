//! Memory that the program maps directly.

use plimsoll_core::alloc::mappings::{self, cell};
use plimsoll_core::internal_scope;

/// Anonymous memory that the program mapped by direct calls of `mmap` and `mremap`, since
/// the process began. Mappings that the C library makes for `malloc`, stacks and libraries are not
/// included. Exact, except for `LostEvents::mappings`; all
/// of one instant. All fields are 0 without the feature `mmap`.
///
/// Counts address space in whole pages, whether touched or not.
///
/// ```
/// let stats = plimsoll::mapping_stats();
/// println!("{} bytes in {} mappings", stats.bytes(), stats.mappings);
/// assert!(stats.unmapped_bytes <= stats.mapped_bytes);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingStats {
    /// Calls that created, grew or moved a mapping. A count.
    pub calls: u64,
    /// Bytes that those calls mapped.
    pub mapped_bytes: u64,
    /// Bytes of those mappings that were unmapped, replaced, or moved away from.
    pub unmapped_bytes: u64,
    /// Existing mappings. A mapping whose middle was unmapped counts as two. A count.
    pub mappings: u64,
}

impl MappingStats {
    /// Returns the bytes that are mapped now.
    pub fn bytes(&self) -> u64 {
        self.mapped_bytes.saturating_sub(self.unmapped_bytes)
    }
}

/// Reads the sums. Takes as long as reading the profile `mmap`: some microseconds.
pub fn mapping_stats() -> MappingStats {
    let _own = internal_scope::scope();
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
