//! The heap and the program's accounts, without a block or a byte.

use super::Pages;
use crate::size_class::{self, go};

pub const PAUSES: usize = 256;
pub const BY_SIZE_CLASSES: usize = 61;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    pub mallocs: u64,
    pub frees: u64,
    pub malloc_bytes: u64,
    pub free_bytes: u64,
    pub by_class: [ClassCounts; size_class::CLASSES],
    pub large: LargeCounts,
    pub exact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassCounts {
    pub size: usize,
    pub mallocs: u64,
    pub frees: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LargeCounts {
    pub mallocs: u64,
    pub frees: u64,
    pub malloc_bytes: u64,
    pub free_bytes: u64,
}

impl HeapStats {
    pub fn live_objects(&self) -> u64 {
        self.mallocs.saturating_sub(self.frees)
    }

    pub fn live_bytes(&self) -> u64 {
        self.malloc_bytes.saturating_sub(self.free_bytes)
    }
}

pub fn heap_stats() -> HeapStats {
    HeapStats {
        mallocs: 0,
        frees: 0,
        malloc_bytes: 0,
        free_bytes: 0,
        by_class: std::array::from_fn(|class| ClassCounts {
            size: size_class::size(class),
            ..ClassCounts::default()
        }),
        large: LargeCounts::default(),
        exact: true,
    }
}

#[derive(Debug)]
pub struct Account {
    name: &'static str,
}

impl Account {
    pub const MOST: usize = 15;

    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    pub fn reserve(&'static self, _bytes: usize) {}

    #[inline]
    pub fn unreserve(&'static self, _bytes: usize) {}

    #[inline]
    pub fn commit(&'static self, _bytes: usize) {}

    #[inline]
    pub fn release(&'static self, _bytes: usize) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountStats {
    pub name: &'static str,
    pub reserved: u64,
    pub committed: u64,
    pub total_reserved: u64,
    pub total_committed: u64,
    pub excess: u64,
}

impl AccountStats {
    pub fn address_space(&self) -> u64 {
        self.reserved.max(self.committed)
    }
}

#[inline]
pub fn accounts() -> Vec<AccountStats> {
    Vec::new()
}

pub fn heap_stats_with_accounts() -> (HeapStats, Vec<AccountStats>) {
    (heap_stats(), accounts())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BySize {
    pub size: u32,
    pub mallocs: u64,
    pub frees: u64,
}

/// Defines the fields of [`MemStats`], and their values.
macro_rules! mem_stats {
    ($($field:ident: $type:ty = $value:expr,)*) => {
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct MemStats {
            $(pub $field: $type,)*
        }

        pub fn mem_stats() -> MemStats {
            MemStats {
                $($field: $value,)*
            }
        }
    };
}

mem_stats! {
    alloc: u64 = 0,
    total_alloc: u64 = 0,
    sys: u64 = 0,
    lookups: u64 = 0,
    mallocs: u64 = 0,
    frees: u64 = 0,
    heap_alloc: u64 = 0,
    heap_sys: u64 = 0,
    heap_idle: u64 = 0,
    heap_inuse: u64 = 0,
    heap_released: u64 = 0,
    heap_slack: u64 = 0,
    pages: Pages = Pages::ABSENT,
    heap_objects: u64 = 0,
    stack_inuse: u64 = 0,
    stack_sys: u64 = 0,
    mspan_inuse: u64 = 0,
    mspan_sys: u64 = 0,
    mcache_inuse: u64 = 0,
    mcache_sys: u64 = 0,
    buck_hash_sys: u64 = 0,
    gc_sys: u64 = 0,
    other_sys: u64 = 0,
    next_gc: u64 = 0,
    last_gc: u64 = 0,
    pause_total_ns: u64 = 0,
    pause_ns: [u64; PAUSES] = [0; PAUSES],
    pause_end: [u64; PAUSES] = [0; PAUSES],
    num_gc: u32 = 0,
    num_forced_gc: u32 = 0,
    gc_cpu_fraction: f64 = 0.0,
    enable_gc: bool = false,
    debug_gc: bool = false,
    by_size: [BySize; BY_SIZE_CLASSES] = std::array::from_fn(|class| BySize {
        size: go::SIZES[class],
        ..BySize::default()
    }),
}
