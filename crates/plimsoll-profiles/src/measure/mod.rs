//! Exact counts of what a closure or a section allocates.
//!
//! The page of `plimsoll::measure` describes them for programs.

mod assertions;
mod budget;
mod named_sites;

use std::alloc::{Layout, alloc, dealloc};
use std::fmt;
use std::hint::black_box;
use std::ptr::NonNull;

pub use assertions::assert_allocations;
pub use budget::{Budget, Expected};
pub use named_sites::prepare;
pub use plimsoll_tasks::account::{TaskAccount, accounts_by_label};
pub use plimsoll_tasks::measured::{AllocationSite, Measured};

use plimsoll_sys::primitives::{AtomicBool, Ordering};

use plimsoll_core::alloc::measured::{self, Counts, Sites};
use plimsoll_core::internal_scope;

/// Calls `work` and counts what the calling thread allocates and frees meanwhile.
///
/// What `work` returns is in [`Measured::result`]. It is dropped after the measurement, so its blocks
/// are part of the net amount. If `work` panics, the measurement ends and the panic continues.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// let measured = plimsoll::measure(|| {
///     drop(vec![0u8; 1000]);
///     vec![0u8; 10]
/// });
/// assert_eq!(measured.allocations, 2);
/// assert_eq!(measured.allocated_bytes, 1010);
/// assert_eq!(measured.net_bytes(), 10);
/// assert_eq!(measured.max_bytes, 1000);
/// ```
///
/// # Panics
/// If the program's global allocator is not an [`Alloc`](plimsoll_core::alloc::Alloc) or a
/// [`SamplingAlloc`](plimsoll_core::alloc::SamplingAlloc): all counts would be zero.
#[track_caller]
pub fn measure<R>(work: impl FnOnce() -> R) -> Measured<R> {
    assert_counted();
    let counts = Counts::new(None);
    let active = Active::begin(&counts);
    let result = work();
    drop(active);
    Measured::from_counts(&counts, result)
}

/// Does the same as [`measure()`], and records the stack of each allocation, which takes some
/// microseconds. [`Measured::sites`] has the sums by stack.
///
/// # Panics
/// As [`measure()`].
#[track_caller]
pub fn measure_with_sites<R>(work: impl FnOnce() -> R) -> Measured<R> {
    let measurement = Measurement::start_with_sites();
    let result = work();
    measurement.finish().with_result(result)
}

/// An active measurement of the calling thread, which ends when it is dropped. It cannot be sent to
/// another thread.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::measure::Measurement;
///
/// let measurement = Measurement::start();
/// let text = String::from("text");
/// assert_eq!(measurement.so_far().allocations, 1);
/// drop(text);
/// assert_eq!(measurement.finish().net_bytes(), 0);
/// ```
///
/// A measurement that is leaked by [`std::mem::forget`] stays active until its thread ends.
pub struct Measurement {
    /// From a box. A pointer, because the list of the thread has another; so the type is not `Send`.
    counts: NonNull<Counts>,
}

impl Measurement {
    /// Begins a measurement.
    ///
    /// # Panics
    /// As [`measure()`].
    #[track_caller]
    pub fn start() -> Self {
        Self::new(false)
    }

    /// Begins a measurement that records the stacks of allocations, as [`measure_with_sites`].
    ///
    /// # Panics
    /// As [`measure()`].
    #[track_caller]
    pub fn start_with_sites() -> Self {
        Self::new(true)
    }

    #[track_caller]
    fn new(with_sites: bool) -> Self {
        assert_counted();
        let counts = {
            let _own = internal_scope::scope();
            let counts = Counts::new(with_sites.then(Sites::new));
            NonNull::from(Box::leak(Box::new(counts)))
        };
        let measurement = Self { counts };
        // SAFETY: the destructor ends the measurement before it frees the counts.
        unsafe { measured::begin(measurement.counts()) };
        measurement
    }

    fn counts(&self) -> &Counts {
        // SAFETY: only the destructor frees the counts.
        unsafe { self.counts.as_ref() }
    }

    /// Returns the counts up to now. The measurement goes on; the memory of the result is counted, if
    /// it has sites.
    pub fn so_far(&self) -> Measured {
        Measured::from_counts(self.counts(), ())
    }

    /// Ends the measurement and returns its counts.
    pub fn finish(self) -> Measured {
        measured::end(self.counts());
        self.so_far()
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        measured::end(self.counts());
        let _own = internal_scope::scope();
        // SAFETY: `new` made the box; no list has its address any more.
        drop(unsafe { Box::from_raw(self.counts.as_ptr()) });
    }
}

impl fmt::Debug for Measurement {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = to.debug_struct("Measurement");
        fields.field("allocations", &self.counts().allocations.get());
        fields.finish_non_exhaustive()
    }
}

/// Ends the measurement of borrowed counts when it is dropped, also by a panic.
struct Active<'a>(&'a Counts);

impl<'a> Active<'a> {
    fn begin(counts: &'a Counts) -> Self {
        // SAFETY: the counts are borrowed until the value is dropped, which ends the measurement. The
        // value is never leaked: it does not leave `measure`.
        unsafe { measured::begin(counts) };
        Self(counts)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        measured::end(self.0);
    }
}

/// Whether a block of the global allocator was counted.
static IS_COUNTED: AtomicBool = AtomicBool::new(false);

#[track_caller]
#[inline]
fn assert_counted() {
    if !IS_COUNTED.load(Ordering::Relaxed) {
        let is_counted = is_counted();
        assert!(
            is_counted,
            "plimsoll: nothing can be measured: the global allocator is not a plimsoll::Alloc; declare \
             `#[global_allocator] static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();`"
        );
        IS_COUNTED.store(true, Ordering::Relaxed);
    }
}

/// Measures one block of the global allocator, and returns whether it was counted.
#[cold]
fn is_counted() -> bool {
    let counts = Counts::new(None);
    let active = Active::begin(&counts);
    let layout = Layout::new::<u64>();
    // SAFETY: the layout has a size, and the block is freed with the same one.
    unsafe {
        let block = black_box(alloc(layout));
        if block.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        dealloc(block, layout);
    }
    drop(active);
    counts.allocations.get() > 0
}
