//! The public view of the ledger.

use crate::alloc::counts::{HEAP, HeapDelta};
use plimsoll_ledger::ledger::Cut;
use plimsoll_ledger::size_class;

/// Everything that was allocated and freed through [`Alloc`](crate::alloc::Alloc) up to one instant.
///
/// All fields belong to the same instant. In every snapshot, whatever the program does meanwhile:
///
/// * `frees <= mallocs` in each class, for large blocks, and in total;
/// * `mallocs` and `frees` are the sums over the classes and the large blocks, and so are the
///   bytes;
/// * an operation is in it as a whole or not at all; a reallocation is a free and an allocation. An
///   allocator that counts itself may count them one after the other.
///
/// A block counts as the size of its class. The requested size is rounded up to 8 bytes up to 1
/// KiB, and to Go's size classes up to 32 KiB; above that, it counts as requested. See
/// [`size_class`].
///
/// ```
/// let stats = plimsoll::heap_stats();
/// println!("{} blocks in use", stats.mallocs - stats.frees);
/// let of_classes: u64 = stats.by_class.iter().map(|class| class.mallocs).sum();
/// assert_eq!(stats.mallocs, of_classes + stats.large.mallocs);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// Blocks ever allocated, a count. Exact.
    pub mallocs: u64,
    /// Blocks ever freed, a count. Exact.
    pub frees: u64,
    /// Bytes ever allocated, in class sizes. Exact.
    pub malloc_bytes: u64,
    /// Bytes ever freed, in class sizes. Exact.
    pub free_bytes: u64,
    /// Blocks up to 32 KiB by size class; position 0 is for sizes of zero, which Rust never
    /// requests.
    pub by_class: [ClassCounts; size_class::CLASSES],
    /// Blocks above 32 KiB.
    pub large: LargeCounts,
    /// False only if the process has forbidden itself `membarrier(2)` since its start. Then the
    /// snapshot may miss operations that were a few nanoseconds old, and the relations above may be
    /// off by those.
    pub exact: bool,
}

/// Allocations and frees in one size class.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// # fn main() {
/// let block = vec![0u8; 1000];
/// let stats = plimsoll::heap_stats();
/// let class = stats.by_class.iter().find(|class| class.size == 1000).unwrap();
/// println!("{} blocks of {} bytes in use", class.mallocs - class.frees, class.size);
/// assert!(class.mallocs > class.frees);
/// # drop(block);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassCounts {
    /// The largest size in the class, in bytes; each block counts as this size.
    pub size: usize,
    /// Blocks ever allocated, a count. Exact.
    pub mallocs: u64,
    /// Blocks ever freed, a count. Exact.
    pub frees: u64,
}

/// Allocations and frees above 32 KiB, where bytes are counted as requested.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// # fn main() {
/// let before = plimsoll::heap_stats().large;
/// let block = vec![0u8; 100_001];
/// let after = plimsoll::heap_stats().large;
/// assert!(after.mallocs > before.mallocs);
/// assert!(after.malloc_bytes - before.malloc_bytes >= 100_001);
/// # drop(block);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LargeCounts {
    /// Blocks ever allocated, a count. Exact.
    pub mallocs: u64,
    /// Blocks ever freed, a count. Exact.
    pub frees: u64,
    /// Bytes ever allocated. Exact.
    pub malloc_bytes: u64,
    /// Bytes ever freed. Exact.
    pub free_bytes: u64,
}

impl HeapStats {
    /// Blocks in use, a count.
    pub fn live_objects(&self) -> u64 {
        self.mallocs.saturating_sub(self.frees)
    }

    /// Bytes in use, in class sizes.
    pub fn live_bytes(&self) -> u64 {
        self.malloc_bytes.saturating_sub(self.free_bytes)
    }
}

/// Reads the ledger. Takes some microseconds, stops or delays no thread, and does not allocate.
/// Concurrent readers take turns. All figures are zero if [`Alloc`](crate::alloc::Alloc) is not the
/// program's allocator.
///
/// Not for signal handlers.
pub fn heap_stats() -> HeapStats {
    HeapStats::from_cut(&cut())
}

/// Returns the cut of the ledger that a reading is made of.
pub(super) fn cut() -> Cut<HeapDelta> {
    #[cfg(feature = "double-check")]
    return plimsoll_ledger::ledger::double_check::HEAP.read(&HEAP);
    #[cfg(not(feature = "double-check"))]
    HEAP.read()
}

impl HeapStats {
    /// Returns the statistics of a cut of the heap's ledger.
    pub fn from_cut(cut: &Cut<HeapDelta>) -> Self {
        let delta = &cut.delta;
        let mut stats = Self {
            mallocs: delta.large_mallocs,
            frees: delta.large_frees,
            malloc_bytes: delta.large_malloc_bytes,
            free_bytes: delta.large_free_bytes,
            by_class: [ClassCounts::default(); size_class::CLASSES],
            large: LargeCounts {
                mallocs: delta.large_mallocs,
                frees: delta.large_frees,
                malloc_bytes: delta.large_malloc_bytes,
                free_bytes: delta.large_free_bytes,
            },
            exact: cut.exact,
        };
        for (class, counts) in stats.by_class.iter_mut().enumerate() {
            let size = size_class::size(class);
            let (mallocs, frees) = (delta.mallocs[class], delta.frees[class]);
            *counts = ClassCounts {
                size,
                mallocs,
                frees,
            };
            stats.mallocs += mallocs;
            stats.frees += frees;
            stats.malloc_bytes += mallocs * size as u64;
            stats.free_bytes += frees * size as u64;
        }
        stats
    }
}
