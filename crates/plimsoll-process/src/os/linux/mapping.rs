//! A mapping of this process, with its resident bytes.

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
    /// All pages may count as pages of the file. Takes less time for large files.
    Whole,
}
