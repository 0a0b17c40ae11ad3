//! Counts of an allocator that counts its blocks itself.

use std::alloc::Layout;

use super::Pages;

/// The exact counts of an allocator that counts its blocks itself: [`Backend::counts`].
///
/// [`SamplingAlloc`](crate::SamplingAlloc) adds no counts to an allocation over such an allocator.
/// Its sampled blocks of up to 32 KiB lie outside the allocator, which counts them among its own
/// through [`count_malloc`](Self::count_malloc) and [`count_free`](Self::count_free).
///
/// [`Backend::counts`]: super::Backend::counts
pub trait Counts: Sync {
    /// Returns all figures of one instant. Calls `visit` for each size class, and last for the
    /// blocks of all other sizes. Includes every operation that ended before the call. It must not
    /// allocate through the program's allocator, and no allocation may wait for it.
    fn read(&self, visit: &mut dyn FnMut(CountedBlocks)) -> CountedPages;

    /// Returns the size with which a block counts, in bytes: its class's, or the requested one above
    /// 32 KiB. Called as [`count_malloc`](Self::count_malloc).
    fn counted_size(&self, layout: Layout) -> usize;

    /// Counts the allocation of a sampled block of up to 32 KiB that Plimsoll placed outside. Called
    /// from inside an allocation, on any thread: it must not allocate, must not panic, and must not
    /// wait for a reader.
    fn count_malloc(&self, layout: Layout);

    /// Counts the free of such a block: as [`count_malloc`](Self::count_malloc).
    fn count_free(&self, layout: Layout);
}

/// The counts of a size class since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedBlocks {
    /// The size of each block of the class, in bytes: one of Go's sizes. `usize::MAX` for all blocks
    /// above 32 KiB.
    pub size: usize,
    /// Blocks ever allocated.
    pub mallocs: u64,
    /// Blocks ever freed: at most `mallocs`.
    pub frees: u64,
    /// Bytes ever allocated.
    pub malloc_bytes: u64,
    /// Bytes ever freed.
    pub free_bytes: u64,
}

/// Figures of the same instant as the [counts](CountedBlocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedPages {
    /// The allocator's memory. `active` is at least the bytes in blocks, less `outside`.
    pub pages: Pages,
    /// Bytes of the sampled blocks in use, which are outside that memory.
    pub outside: u64,
}
