//! The purpose of an allocator's mappings.

/// The purpose of memory that an allocator has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// The program's blocks, with free and not yet used memory between them.
    Blocks,
    /// The allocator's own structures.
    Structures,
}
