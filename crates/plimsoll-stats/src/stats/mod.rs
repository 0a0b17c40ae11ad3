//! Memory statistics: exact, of one instant, and read without stopping a thread.

mod footprint;
mod free_os_memory;
mod gc_stats;
pub mod heap_pages;
pub mod limits;
pub mod locks;
mod mapping_stats;
pub mod memory;
pub mod outside_heap;
pub mod processors;
pub mod reconciliation;
pub mod space;

pub use crate::gc::record::PAUSES;
pub use footprint::{Footprint, declared_bytes, footprint};
pub use free_os_memory::{free_os_memory, return_free_memory, returned_bytes};
pub use gc_stats::{GcStats, gc_stats};
pub use limits::{ControlGroup, NearestLimit, Stalled, control_groups, nearest_limit};
pub use locks::{LockStats, lock_stats};
pub use mapping_stats::{MappingStats, mapping_stats};
pub use memory::{BY_SIZE_CLASSES, BySize, MemStats, mem_stats};
pub use plimsoll_backend::backend::{Backend, Exactness, Figure, Pages, SizeClass, Usage, backend};
pub use plimsoll_core::histogram::Histogram;
pub use plimsoll_core::stats::{
    Account, AccountStats, ClassCounts, HeapStats, LargeCounts, accounts, heap_stats,
    heap_stats_with_accounts,
};
pub use plimsoll_tasks::declared::{Declared, DeclaredStats, assert_declared_within, declared};
pub use processors::{CpuStats, cpu_stats};
pub use reconciliation::{Basis, CgroupMemory, KernelMemory, Reconciliation, Row, reconcile};
pub use space::{ClassSpace, Fragmentation, Live, Unavailable, fragmentation};
