//! An allocator's figures about its pages.
//!
//! The ledger counts every block, exactly. Only the allocator knows the memory that it holds beyond
//! them. A [`Backend`] reads it from one allocator. `Alloc` names its backend; the
//! process registers it at the first allocation that takes a cold path, so that the fast path is
//! not affected.

mod classes;
#[cfg(feature = "jemalloc")]
mod jemalloc;
#[cfg(feature = "mimalloc")]
mod mimalloc;
mod pages;
mod registry;
mod system;
mod usage;

use std::ops::Range;

pub use classes::SizeClass;
#[cfg(feature = "jemalloc")]
pub use jemalloc::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use mimalloc::MiMalloc;
pub use pages::{Exactness, Figure, Pages};
pub use registry::backend;
pub use registry::{notice, pages};
pub use system::System;
pub use system::given_out as given_out_by_c;
pub use usage::Usage;

/// The largest size of blocks, in bytes, whose classes are reported: larger blocks are counted by their bytes.
pub const LARGEST_CLASS: usize = 32 << 10;

/// Reports an allocator's pages, and returns free ones to the system.
///
/// An implementation is named by `Alloc::with_backend`.
/// `mem_stats()` and `free_os_memory()` call the
/// backend that the process has registered: see [`backend()`].
///
/// ```
/// use plimsoll::stats::backend::{Backend, Figure, Pages};
///
/// /// Of an allocator with one region of 64 MiB. `Alloc::with_backend` names it.
/// struct Region;
///
/// impl Backend for Region {
///     fn name(&self) -> &'static str { "region" }
///     fn pages(&self) -> Pages { Pages { reserved: Figure::exact(64 << 20), ..Pages::ABSENT } }
///     fn purge(&self) {}
/// }
/// assert_eq!(Region.pages().reserved.known(), Some(64 << 20));
/// ```
pub trait Backend: Sync {
    /// Returns the allocator's name. Backends with the same name count as the same.
    fn name(&self) -> &'static str;

    /// Returns the memory that the allocator has from the system. Called twice for each reading of
    /// the statistics, or up to eight times if it contradicts the bytes in blocks; no allocation
    /// calls it. It must not allocate through the program's allocator, and should not take locks
    /// that allocations take.
    fn pages(&self) -> Pages;

    /// Returns pages without a block to the system.
    fn purge(&self);

    /// Called once by each thread before its first allocation through an `Alloc` of
    /// this backend, from inside that call. It must not allocate through the program's allocator,
    /// must not panic, and must not wait for other threads.
    fn enlist(&self) {}

    /// Visits all size classes, from the smallest blocks to the largest, including classes without
    /// blocks. Only `fragmentation()` calls it. So it may take
    /// some time, and locks that allocations take for a moment. It must not allocate through the
    /// program's allocator. Returns false, possibly after some visits, if the allocator cannot
    /// report its classes.
    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        let _ = visit;
        false
    }

    /// Visits all memory that the allocator has mapped, as far as its address is known. Only
    /// `reconcile()` calls it. It must not allocate through the program's
    /// allocator. Returns false if the addresses of blocks are unknown.
    fn visit_memory(&self, visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
        let _ = visit;
        false
    }

    /// Returns the number of bytes from `address` on that are the allocator's own structures, if
    /// `words`, the first words there, identify them. Only `reconcile()` calls
    /// it, at each multiple of 2 MiB in memory without another owner.
    fn structures_at(&self, address: usize, words: [usize; 4]) -> Option<usize> {
        let _ = (address, words);
        None
    }
}

/// Returns whether an allocator aligns every block of that size to at least `align`.
#[inline(always)]
pub fn is_aligned_anyway(align: usize, size: usize) -> bool {
    /// The alignment of every block of at least this size.
    const MALLOC_ALIGNMENT: usize = if cfg!(target_pointer_width = "64") {
        16
    } else {
        8
    };
    plimsoll_sys::arch::keep_branches_apart();
    if align > MALLOC_ALIGNMENT {
        return false;
    }
    plimsoll_sys::arch::keep_branches_apart();
    align <= size
}
