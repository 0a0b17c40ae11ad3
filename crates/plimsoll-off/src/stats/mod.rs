//! Statistics of a program in which nothing was counted.

pub mod backend;
mod declared;
mod limits;
mod memory;
mod reconciliation;
mod space;

use std::time::{Duration, SystemTime};

pub use backend::{Backend, Exactness, Figure, Pages, SizeClass, Usage};
pub use declared::{
    Declared, DeclaredStats, Footprint, assert_declared_within, declared, footprint,
};
pub use limits::{ControlGroup, NearestLimit, Stalled, control_groups, nearest_limit};
pub use memory::{
    Account, AccountStats, BY_SIZE_CLASSES, BySize, ClassCounts, HeapStats, LargeCounts, MemStats,
    PAUSES, accounts, heap_stats, heap_stats_with_accounts, mem_stats,
};
pub use reconciliation::{Basis, CgroupMemory, KernelMemory, Reconciliation, Row, reconcile};
pub use space::{ClassSpace, Fragmentation, Live, Unavailable, fragmentation};

#[inline]
pub fn backend() -> Option<&'static dyn Backend> {
    None
}

#[inline]
pub fn free_os_memory() {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
    pub gc_mark_assist: Duration,
    pub gc_mark_dedicated: Duration,
    pub gc_mark_idle: Duration,
    pub gc_pause: Duration,
    pub gc_total: Duration,
    pub scavenge_assist: Duration,
    pub scavenge_background: Duration,
    pub scavenge_total: Duration,
    pub user: Duration,
    pub idle: Duration,
    pub total: Duration,
}

#[inline]
pub fn cpu_stats() -> CpuStats {
    CpuStats::default()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcStats {
    pub last_gc: Option<SystemTime>,
    pub num_gc: u64,
    pub pause_total: Duration,
    pub pause: Vec<Duration>,
    pub pause_end: Vec<SystemTime>,
    pub pause_quantiles: Vec<Duration>,
}

impl GcStats {
    pub fn with_quantiles(quantiles: usize) -> Self {
        Self {
            pause_quantiles: vec![Duration::ZERO; quantiles],
            ..Self::default()
        }
    }

    pub fn read(&mut self) {
        let mut pause_quantiles = std::mem::take(&mut self.pause_quantiles);
        pause_quantiles.fill(Duration::ZERO);
        *self = Self {
            pause_quantiles,
            ..Self::default()
        };
    }
}

pub fn gc_stats() -> GcStats {
    GcStats::with_quantiles(5)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    pub waits: u64,
    pub waited: Duration,
    pub lock_waits: u64,
    pub lock_waited: Duration,
    pub lock_waited_estimate: Duration,
    pub wakeup_latency: Duration,
    pub contended_releases: u64,
    pub blamed: Duration,
}

impl LockStats {
    pub fn mutex_wait_total(&self) -> Duration {
        self.lock_waited + self.lock_waited_estimate
    }
}

#[inline]
pub fn lock_stats() -> LockStats {
    LockStats::default()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingStats {
    pub calls: u64,
    pub mapped_bytes: u64,
    pub unmapped_bytes: u64,
    pub mappings: u64,
}

impl MappingStats {
    pub fn bytes(&self) -> u64 {
        self.mapped_bytes.saturating_sub(self.unmapped_bytes)
    }
}

#[inline]
pub fn mapping_stats() -> MappingStats {
    MappingStats::default()
}

#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    pub counts: Vec<u64>,
    pub buckets: &'static [f64],
}

impl Histogram {
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
