//! Measurements that only run the closure, with counts of zero, and assertions about them that pass.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{RangeInclusive, RangeToInclusive};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

#[macro_export]
macro_rules! assert_allocs {
    ($expected:expr, $work:expr $(,)?) => {
        $crate::measure::assert_allocations($expected, $work, ::std::format_args!(""))
    };
    ($expected:expr, $work:expr, $($message:tt)+) => {
        $crate::measure::assert_allocations($expected, $work, ::std::format_args!($($message)+))
    };
}

#[macro_export]
macro_rules! assert_no_alloc {
    ($work:expr $(,)?) => {
        $crate::measure::assert_allocations(0, $work, ::std::format_args!(""))
    };
    ($work:expr, $($message:tt)+) => {
        $crate::measure::assert_allocations(0, $work, ::std::format_args!($($message)+))
    };
}

#[inline]
pub fn assert_allocations<R>(
    _: impl Expected,
    work: impl FnOnce() -> R,
    _: fmt::Arguments<'_>,
) -> R {
    work()
}

#[inline]
pub fn measure<R>(work: impl FnOnce() -> R) -> Measured<R> {
    <Measured>::default().with_result(work())
}

#[inline]
pub fn measure_with_sites<R>(work: impl FnOnce() -> R) -> Measured<R> {
    measure(work)
}

pub trait Expected: fmt::Debug {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a budget is checked by its method `check`"]
pub struct Budget {
    // Compared and shown.
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

macro_rules! limits {
    ($($limit:ident: $type:ty),+) => {
        $(pub const fn $limit(mut self, most: $type) -> Self {
            self.$limit = most;
            self
        })+
    };
}

impl Budget {
    pub const fn new() -> Self {
        Self {
            allocations: u64::MAX,
            allocated_bytes: u64::MAX,
            max_bytes: u64::MAX,
            net_bytes: i64::MAX,
        }
    }

    limits!(allocations: u64, allocated_bytes: u64, max_bytes: u64, net_bytes: i64);

    #[inline]
    pub fn check<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measured<R = ()> {
    pub result: R,
    pub allocations: u64,
    pub frees: u64,
    pub allocated_bytes: u64,
    pub freed_bytes: u64,
    pub max_bytes: u64,
    pub max_blocks: u64,
    /// Empty. With it, a value has something to drop, as it has with the feature `on`.
    sites: Vec<AllocationSite>,
}

impl<R> Measured<R> {
    #[inline]
    pub fn with_result<T>(self, result: T) -> Measured<T> {
        Measured {
            result,
            allocations: self.allocations,
            frees: self.frees,
            allocated_bytes: self.allocated_bytes,
            freed_bytes: self.freed_bytes,
            max_bytes: self.max_bytes,
            max_blocks: self.max_blocks,
            sites: self.sites,
        }
    }

    #[inline]
    pub fn net_bytes(&self) -> i64 {
        self.allocated_bytes.wrapping_sub(self.freed_bytes) as i64
    }

    #[inline]
    pub fn net_blocks(&self) -> i64 {
        self.allocations.wrapping_sub(self.frees) as i64
    }

    #[inline]
    pub fn sites(&self) -> &[AllocationSite] {
        &self.sites
    }
}

impl<R> fmt::Display for Measured<R> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{} allocations of {} bytes, {} frees of {} bytes, at most {} bytes at once",
            self.allocations, self.allocated_bytes, self.frees, self.freed_bytes, self.max_bytes
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationSite {
    pub allocations: u64,
    pub bytes: u64,
    pub stack: &'static [usize],
}

/// Neither `Send` nor `UnwindSafe`, as the one that counts.
pub struct Measurement(PhantomData<*const Cell<()>>);

impl Measurement {
    #[inline]
    pub fn start() -> Self {
        Self(PhantomData)
    }

    #[inline]
    pub fn start_with_sites() -> Self {
        Self::start()
    }

    #[inline]
    pub fn so_far(&self) -> Measured {
        Measured::default()
    }

    #[inline]
    pub fn finish(self) -> Measured {
        self.so_far()
    }
}

impl fmt::Debug for Measurement {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Measurement").finish_non_exhaustive()
    }
}

type Callback = Box<dyn Fn(&TaskAccount) + Send + Sync>;

// Keeps what the callback captured for as long as if it could be called.
#[derive(Clone, Default)]
pub struct TaskAccount(Arc<AssertUnwindSafe<Mutex<Option<Callback>>>>);

impl TaskAccount {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub fn read(&self) -> Measured {
        Measured::default()
    }

    pub fn set_limit(&self, _: u64, callback: impl Fn(&Self) + Send + Sync + 'static) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = place.replace(Box::new(callback));
        drop(place);
        drop(before);
    }
}

impl fmt::Debug for TaskAccount {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "TaskAccount({})", self.read())
    }
}

#[inline]
pub fn accounts_by_label(_: &str) -> Vec<(&'static str, TaskAccount)> {
    Vec::new()
}

// Otherwise clippy warns of a program's `drop(measurement)`.
impl Drop for Measurement {
    fn drop(&mut self) {}
}
