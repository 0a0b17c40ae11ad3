//! An allocator's memory for blocks of each size.

/// One of an allocator's size classes, and its memory.
///
/// ```
/// use plimsoll::stats::backend::SizeClass;
///
/// // A slab of 64 KiB for blocks of up to 48 bytes, with 100 blocks in use.
/// let (largest, in_use, active) = (48, 100, 64 << 10);
/// let class =
///     SizeClass { largest, room: active / 48, in_use, in_use_bytes: 48 * in_use, active };
/// assert!(class.in_use <= class.room && class.in_use_bytes <= class.active);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// The largest block of the class, in bytes; `usize::MAX` without a limit.
    pub largest: usize,
    /// The number of blocks that fit into the slabs or pages of the class.
    pub room: u64,
    /// The number of blocks that are not free, by the allocator's count. Blocks in a thread's
    /// cache, and blocks freed for a thread that has not collected them yet, may count as not free.
    /// At most `room`.
    pub in_use: u64,
    /// Bytes of those blocks, at the allocator's sizes. At most `active`.
    pub in_use_bytes: u64,
    /// Bytes of the slabs or pages.
    pub active: u64,
}
