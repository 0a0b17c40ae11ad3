//! Numbers about memory: exact, of one instant, and read without stopping anyone.

mod account;
pub mod backend;
pub(crate) mod cpu_stats;
pub(crate) mod fragmentation;
mod free_os_memory;
mod gc_stats;
pub(crate) mod heap_pages;
mod heap_stats;
mod histogram;
mod lock_stats;
mod mapping_stats;
mod mem_stats;
pub(crate) mod outside_heap;
mod reconcile;
mod time_histogram;

pub use account::{Account, AccountStats, accounts, heap_stats_with_accounts};
pub use backend::{Backend, Exactness, Figure, Held, Pages, SizeClass, backend};
pub use cpu_stats::{CpuStats, cpu_stats};
pub use fragmentation::{ClassSpace, Fragmentation, Live, Untold, fragmentation};
pub use free_os_memory::free_os_memory;
pub use gc_stats::{GcStats, gc_stats};
pub use heap_stats::{ClassCounts, HeapStats, LargeCounts, heap_stats};
pub use histogram::Histogram;
pub use lock_stats::{LockStats, lock_stats};
pub use mapping_stats::{MappingStats, mapping_stats};
pub use mem_stats::{BY_SIZE_CLASSES, BySize, MemStats, PAUSES, mem_stats};
pub use reconcile::{Basis, CgroupMemory, KernelMemory, Reconciliation, Row, reconcile};
pub(crate) use time_histogram::{Counts, TimeCounts};
