//! Memory statistics: exact, of one instant, and read without stopping a thread.

pub(crate) mod cpu_stats;
pub(crate) mod fragmentation;
mod free_os_memory;
mod gc_stats;
pub(crate) mod heap_pages;
mod lock_stats;
mod mapping_stats;
mod mem_stats;
pub(crate) mod outside_heap;
pub(crate) mod reconcile;

pub use crate::gc::record::PAUSES;
pub use cpu_stats::{CpuStats, cpu_stats};
pub use fragmentation::{ClassSpace, Fragmentation, Live, Unavailable, fragmentation};
pub use free_os_memory::free_os_memory;
pub use gc_stats::{GcStats, gc_stats};
pub use lock_stats::{LockStats, lock_stats};
pub use mapping_stats::{MappingStats, mapping_stats};
pub use mem_stats::{BY_SIZE_CLASSES, BySize, MemStats, mem_stats};
pub use plimsoll_core::backend::{Backend, Exactness, Figure, Pages, SizeClass, Usage, backend};
pub use plimsoll_core::histogram::Histogram;
pub use plimsoll_core::stats::{
    Account, AccountStats, ClassCounts, HeapStats, LargeCounts, accounts, heap_stats,
    heap_stats_with_accounts,
};
pub use reconcile::{Basis, CgroupMemory, KernelMemory, Reconciliation, Row, reconcile};

/// Allocators that report their pages, and the trait for others.
pub mod backend {
    #[cfg(feature = "jemalloc")]
    pub use plimsoll_core::backend::Jemalloc;
    #[cfg(feature = "mimalloc")]
    pub use plimsoll_core::backend::MiMalloc;
    pub use plimsoll_core::backend::{Backend, Exactness, Figure, Pages, SizeClass, System, Usage};
}
