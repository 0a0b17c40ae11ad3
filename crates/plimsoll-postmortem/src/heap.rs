//! Exact counts of allocations and frees.

use crate::layout::{CounterLayout, MAX_CLASSES};

/// All allocations and frees of a process. A block of up to the largest class counts with the size
/// of its class; a larger block counts with its requested bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapCounts {
    /// The number of allocations.
    pub mallocs: u64,
    /// The number of frees.
    pub frees: u64,
    /// Bytes allocated.
    pub malloc_bytes: u64,
    /// Bytes freed.
    pub free_bytes: u64,
    /// The counts of each size class, smallest first.
    pub classes: Vec<ClassCounts>,
    /// The counts of blocks larger than all classes.
    pub large: LargeCounts,
}

/// Allocations and frees of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// The largest size in the class, in bytes.
    pub size: u64,
    /// The number of allocations.
    pub mallocs: u64,
    /// The number of frees.
    pub frees: u64,
}

/// Allocations and frees of blocks larger than all size classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeCounts {
    /// The number of allocations.
    pub mallocs: u64,
    /// The number of frees.
    pub frees: u64,
    /// Bytes requested.
    pub malloc_bytes: u64,
    /// Bytes freed.
    pub free_bytes: u64,
}

impl HeapCounts {
    /// Returns the number of blocks in use.
    pub fn live_objects(&self) -> u64 {
        self.mallocs.saturating_sub(self.frees)
    }

    /// Returns the number of bytes in use.
    pub fn live_bytes(&self) -> u64 {
        self.malloc_bytes.saturating_sub(self.free_bytes)
    }

    /// Computes the counts from the ledger's counters and the sizes of the classes. Returns `None`
    /// if the counts are impossible, such as more frees than allocations.
    pub(crate) fn new(layout: &CounterLayout, counters: &[u64], sizes: &[u64]) -> Option<Self> {
        let counter = |at: usize| counters.get(at).copied().unwrap_or(0);
        let large = LargeCounts {
            mallocs: counter(layout.large_mallocs),
            frees: counter(layout.large_frees),
            malloc_bytes: counter(layout.large_malloc_bytes),
            free_bytes: counter(layout.large_free_bytes),
        };
        let classes = (0..layout.classes.min(MAX_CLASSES)).map(|class| ClassCounts {
            size: sizes.get(class).copied().unwrap_or(0),
            mallocs: counter(layout.mallocs + class),
            frees: counter(layout.frees + class),
        });
        let mut counts = Self {
            classes: classes.collect(),
            large,
            ..Self::default()
        };
        if !counts.are_possible() {
            return None;
        }
        let sum = |count: fn(&ClassCounts) -> u64| counts.classes.iter().map(count).sum::<u64>();
        (
            counts.mallocs,
            counts.frees,
            counts.malloc_bytes,
            counts.free_bytes,
        ) = (
            large.mallocs + sum(|class| class.mallocs),
            large.frees + sum(|class| class.frees),
            large.malloc_bytes + sum(|class| class.size * class.mallocs),
            large.free_bytes + sum(|class| class.size * class.frees),
        );
        Some(counts)
    }

    fn are_possible(&self) -> bool {
        let bytes = self.classes.iter().map(|class| {
            // A class may have size zero; its allocations are limited as if they were of one byte.
            u128::from(class.mallocs) * u128::from(class.size.max(1))
        });
        let large = &self.large;
        self.classes
            .iter()
            .all(|class| class.frees <= class.mallocs)
            && large.frees <= large.mallocs
            && large.free_bytes <= large.malloc_bytes
            && large.mallocs < 1 << 48
            && bytes.sum::<u128>() + u128::from(large.malloc_bytes) <= i64::MAX as u128
    }
}
