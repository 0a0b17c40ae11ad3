//! What other crates define, at the root of this one.

#[cfg(feature = "jemalloc")]
pub use plimsoll_backend::backend::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use plimsoll_backend::backend::MiMalloc;
pub use plimsoll_core::alloc::{Alloc, SamplingAlloc};
pub use plimsoll_core::settings::{MemoryLimit, MemoryLimitError};
pub use plimsoll_ledger::size_class;
pub use plimsoll_limits::memory_limit::{
    MemoryPressure, MemoryThreshold, on_memory_threshold, set_memory_limit,
};
pub use plimsoll_profiles::dhat;
pub use plimsoll_profiles::measure::measure;
pub use plimsoll_profiles::{
    assert_allocs, assert_no_alloc, dhat_assert, dhat_assert_eq, dhat_assert_ne,
};
#[cfg(any(
    feature = "bridge-metrics",
    feature = "bridge-opentelemetry",
    feature = "bridge-prometheus-client"
))]
pub use plimsoll_serve::bridge;
#[cfg(feature = "push")]
pub use plimsoll_serve::push;
pub use plimsoll_stats::stats::{
    CpuStats, GcStats, HeapStats, Histogram, LockStats, MappingStats, MemStats, cpu_stats,
    free_os_memory, gc_stats, heap_stats, lock_stats, mapping_stats, mem_stats, reconcile,
};
pub use plimsoll_tasks::assert_declared;
pub use plimsoll_waits::sync;
