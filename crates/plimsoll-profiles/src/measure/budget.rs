//! Limits of what code may allocate.

use std::fmt;
use std::ops::{RangeInclusive, RangeToInclusive};

use super::{Measured, measure_with_sites};

/// A number of allocations that an assertion expects: `3`, `1..=3` or `..=3`.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// let words = plimsoll::assert_allocs!(1..=2, || "a b c".split(' ').collect::<Vec<_>>());
/// assert_eq!(words.len(), 3);
/// ```
pub trait Expected: fmt::Debug {
    /// Returns whether code that made this number of allocations is as expected.
    fn includes(&self, allocations: u64) -> bool;
}

impl Expected for u64 {
    fn includes(&self, allocations: u64) -> bool {
        *self == allocations
    }
}

impl Expected for RangeInclusive<u64> {
    fn includes(&self, allocations: u64) -> bool {
        self.contains(&allocations)
    }
}

impl Expected for RangeToInclusive<u64> {
    fn includes(&self, allocations: u64) -> bool {
        self.contains(&allocations)
    }
}

/// Upper limits of what a closure may allocate on the calling thread.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::measure::Budget;
///
/// const PARSER: Budget = Budget::new().allocations(1).max_bytes(1 << 10);
/// let words = PARSER.check(|| "a b c".split(' ').collect::<Vec<_>>());
/// assert_eq!(words.len(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a budget is checked by its method `check`"]
pub struct Budget {
    allocations: u64,
    allocated_bytes: u64,
    max_bytes: u64,
    net_bytes: i64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl Budget {
    /// Returns a budget without limits.
    pub const fn new() -> Self {
        Self {
            allocations: u64::MAX,
            allocated_bytes: u64::MAX,
            max_bytes: u64::MAX,
            net_bytes: i64::MAX,
        }
    }

    /// Limits the number of allocations, reallocations included.
    pub const fn allocations(mut self, most: u64) -> Self {
        self.allocations = most;
        self
    }

    /// Limits the bytes that are requested by all allocations.
    pub const fn allocated_bytes(mut self, most: u64) -> Self {
        self.allocated_bytes = most;
        self
    }

    /// Limits the bytes that are allocated less those freed, at every time.
    pub const fn max_bytes(mut self, most: u64) -> Self {
        self.max_bytes = most;
        self
    }

    /// Limits the bytes that are allocated less those freed, at the end. What the closure returns counts.
    pub const fn net_bytes(mut self, most: i64) -> Self {
        self.net_bytes = most;
        self
    }

    /// Calls `work`, and returns what it returns.
    ///
    /// # Panics
    /// If a limit is exceeded: the message has the limit and the sites of all allocations. Also as
    /// [`measure()`](super::measure()).
    #[track_caller]
    pub fn check<R>(&self, work: impl FnOnce() -> R) -> R {
        let measured = measure_with_sites(work);
        if let Some(excess) = self.excess(&measured) {
            panic!("the budget of {excess} is exceeded: made {measured}");
        }
        measured.result
    }

    /// Returns the first limit that is exceeded.
    fn excess<R>(&self, measured: &Measured<R>) -> Option<String> {
        if measured.allocations > self.allocations {
            return Some(format!("{} allocations", self.allocations));
        }
        if measured.allocated_bytes > self.allocated_bytes {
            return Some(format!("{} allocated bytes", self.allocated_bytes));
        }
        if measured.max_bytes > self.max_bytes {
            return Some(format!("{} bytes at once", self.max_bytes));
        }
        if measured.net_bytes() > self.net_bytes {
            return Some(format!("{} bytes at the end", self.net_bytes));
        }
        None
    }
}
