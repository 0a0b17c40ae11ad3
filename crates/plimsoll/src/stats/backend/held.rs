//! What an allocator has mapped memory for.

/// What memory is for that an allocator has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The program's blocks, with what is free between them and what is not in use yet.
    Blocks,
    /// The allocator's own structures.
    Structures,
}
