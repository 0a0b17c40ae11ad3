//! What an allocator can tell of its pages.
//!
//! The ledger knows blocks: every one of them, exactly. What memory an allocator holds around them
//! is known to it alone. A [`Backend`] asks one allocator for that. [`Alloc`](crate::Alloc) names
//! its backend; the process notices it at the first allocation that goes the slow way, so that the
//! common path has nothing to do with it.

mod classes;
mod held;
#[cfg(feature = "jemalloc")]
mod jemalloc;
#[cfg(feature = "mimalloc")]
mod mimalloc;
mod noticed;
mod pages;
mod system;

use std::ops::Range;

pub use classes::SizeClass;
pub use held::Held;
#[cfg(feature = "jemalloc")]
pub use jemalloc::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use mimalloc::MiMalloc;
pub use noticed::backend;
pub(crate) use noticed::{notice, pages};
pub use pages::{Exactness, Figure, Pages};
pub use system::System;

/// What an allocator can tell of its pages, and how it is asked to give them back.
///
/// An implementation is named by [`Alloc::with_backend`](crate::Alloc::with_backend).
/// [`mem_stats()`](crate::mem_stats) and [`free_os_memory()`](crate::free_os_memory) ask the one
/// that the process has noticed: see [`backend()`].
pub trait Backend: Sync {
    /// The allocator's name. Backends of one name are the same.
    fn name(&self) -> &'static str;

    /// What the allocator has from the system. Asked twice for each reading of the statistics, or
    /// up to eight times if it contradicts what is in blocks; not by any allocation. It must
    /// not allocate through the program's allocator, and should not take locks that allocations
    /// take.
    fn pages(&self) -> Pages;

    /// Gives pages without a block in them back to the system.
    fn purge(&self);

    /// Called once by each thread before its first allocation through an
    /// [`Alloc`](crate::Alloc) of this backend, from inside that: it must not allocate through the
    /// program's allocator, must not panic, and must not wait for other threads.
    fn enlist(&self) {}

    /// Visits all size classes, from the smallest blocks to the largest, also those of which there
    /// are none. Asked for by [`fragmentation()`](crate::stats::fragmentation()) only, so it may
    /// take some time, and locks that allocations take for a moment. It must not allocate
    /// through the program's allocator. Returns false, after whatever it has visited, if the
    /// allocator cannot tell.
    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        let _ = visit;
        false
    }

    /// Visits all memory that the allocator has mapped, as far as it knows where that is. Asked for
    /// by [`reconcile()`](crate::reconcile) only; it must not allocate through the program's
    /// allocator. Returns false if it does not know where blocks are.
    fn visit_memory(&self, visit: &mut dyn FnMut(Held, Range<usize>)) -> bool {
        let _ = visit;
        false
    }

    /// How many bytes from `address` on are the allocator's own structures, if `words`, which are
    /// the first there, show that. Asked for by [`reconcile()`](crate::reconcile) only, at each
    /// multiple of 2 MiB in memory that nobody else has.
    fn structures_at(&self, address: usize, words: [usize; 4]) -> Option<usize> {
        let _ = (address, words);
        None
    }
}
