//! The kernel's figures on mappings: not available on this system.

use std::ops::Range;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address range.
    pub range: Range<usize>,
    /// Whether it is readable. Mappings without any permission are reserved address space.
    pub accessible: bool,
    /// Whether it can be written.
    pub writable: bool,
    /// Whether it is shared with other processes.
    pub shared: bool,
    /// Whether it maps a file.
    pub of_file: bool,
    /// The path, or a name in brackets; empty for memory without either.
    pub name: String,
    /// Resident bytes.
    pub resident: u64,
    /// Resident bytes that belong to no file, including private copies of file pages.
    pub anonymous: u64,
}

/// How private mappings of files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateFiles {
    /// Pages that the process modified are anonymous.
    Divided,
    /// All pages may count as pages of the file.
    Whole,
}

/// The sums over all mappings, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident bytes.
    pub resident: u64,
    /// Resident bytes, each page divided by the number of processes that share it.
    pub proportional: u64,
    /// Resident bytes that belong to no file.
    pub anonymous: u64,
    /// Resident bytes that the system may reclaim without notice.
    pub lazily_freed: u64,
    /// Bytes in swap.
    pub swapped: u64,
}

/// Returns `None`.
#[inline]
pub fn mappings(_: PrivateFiles) -> Option<Vec<Mapping>> {
    None
}

/// Returns `None`.
#[inline]
pub fn rollup() -> Option<Rollup> {
    None
}
