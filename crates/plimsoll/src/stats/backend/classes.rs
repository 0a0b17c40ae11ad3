//! What an allocator has for blocks of each size.

/// One of an allocator's size classes, and what memory it has for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// The largest block that the class is for, in bytes; `usize::MAX` if there is no such limit.
    pub largest: usize,
    /// Blocks that there is room for, in the slabs or pages that the allocator has for the class.
    pub room: u64,
    /// Blocks that are not free, as the allocator counts: what a thread keeps for itself, or has
    /// freed for another thread that does not know yet, may count as not free. At most `room`.
    pub in_use: u64,
    /// Bytes of those, each as long as the allocator makes it. At most `active`.
    pub in_use_bytes: u64,
    /// Bytes of the slabs or pages.
    pub active: u64,
}
