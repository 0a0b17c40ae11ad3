//! Memory statistics: exact, of one instant, and read without stopping a thread.

pub use plimsoll_stats::stats::{
    Account, AccountStats, BY_SIZE_CLASSES, Backend, Basis, BySize, CgroupMemory, ClassCounts,
    ClassSpace, ControlGroup, CpuStats, Declared, DeclaredStats, Exactness, Figure, Footprint,
    Fragmentation, GcStats, HeapStats, Histogram, KernelMemory, LargeCounts, Live, LockStats,
    MappingStats, MemStats, NearestLimit, PAUSES, Pages, Reconciliation, Row, SizeClass, Stalled,
    Unavailable, Usage, accounts, assert_declared_within, backend, control_groups, cpu_stats,
    declared, footprint, fragmentation, free_os_memory, gc_stats, heap_stats,
    heap_stats_with_accounts, lock_stats, mapping_stats, mem_stats, nearest_limit, reconcile,
};

/// Allocators that report their pages, and the trait for others.
pub mod backend {
    #[cfg(feature = "jemalloc")]
    pub use plimsoll_backend::backend::Jemalloc;
    #[cfg(feature = "mimalloc")]
    pub use plimsoll_backend::backend::MiMalloc;
    pub use plimsoll_backend::backend::{
        Backend, Exactness, Figure, Pages, SizeClass, System, Usage,
    };
}
