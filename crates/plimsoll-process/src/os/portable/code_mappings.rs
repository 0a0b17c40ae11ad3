//! The executable mappings of this process: not available on this system.

use std::ops::Range;

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// The address range.
    pub range: Range<u64>,
    /// The offset of its start in the file; 0 without a file.
    pub offset: u64,
    /// Whether it maps a file.
    pub of_file: bool,
    /// The path, or a name in brackets; empty for memory without either.
    pub name: String,
}

/// Returns `None`.
#[inline]
pub fn code_mappings() -> Option<Vec<CodeMapping>> {
    None
}

/// Returns `None`.
#[inline]
pub fn code_mappings_of(_: &[usize]) -> Option<Vec<CodeMapping>> {
    None
}
