//! Measurements for criterion: [`Allocations`], [`AllocatedBytes`] and [`MaxBytes`] of a benchmark, in
//! place of its time.
//!
//! ```
//! # // A benchmark's file.
//! use criterion::Criterion;
//! use plimsoll_criterion::Allocations;
//!
//! #[global_allocator]
//! static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
//!
//! fn parsing(criterion: &mut Criterion<Allocations>) {
//!     criterion.bench_function("parse", |bencher| bencher.iter(|| "a b".split(' ').collect::<Vec<_>>()));
//! }
//!
//! criterion::criterion_group! {
//!     name = benches;
//!     config = Criterion::default().with_measurement(Allocations);
//!     targets = parsing
//! }
//! # fn main() {}
//! ```
//!
//! Figures are those of [`plimsoll::measure()`]: exact, of the calling thread, in bytes as requested. They do
//! not vary between iterations that do the same, so `.sample_size(10)` and a short `.measurement_time(..)`
//! suffice; with `.noise_threshold(0.0)`, criterion reports the first additional allocation. The names of
//! their benchmarks should differ from those for time, because criterion compares results by name.
//!
//! criterion reports an error for a benchmark whose figure is 0. For code that allocates nothing,
//! [`plimsoll::assert_no_alloc!`] is a test.
//!
//! # Panics
//! Benchmarks panic if the global allocator is not a [`plimsoll::Alloc`].

mod format;

use criterion::measurement::{Measurement, ValueFormatter};
use plimsoll::measure::{self, measure};

use format::Format;

/// The number of allocations of an iteration, reallocations included.
///
/// With the benchmark's `iter`, it is the mean of the sample's iterations, with what the sample's first
/// iteration initializes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocations;

/// The bytes that the allocations of an iteration requested; for a reallocation, all of its new size.
/// Otherwise as [`Allocations`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocatedBytes;

/// The maximum of the bytes allocated less those freed in an iteration.
///
/// criterion divides the result of many iterations by their number, which is wrong for a maximum. So
/// only benchmarks with `iter_custom` can use it:
///
/// ```
/// # use criterion::Criterion;
/// use plimsoll_criterion::MaxBytes;
///
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// fn parsing(criterion: &mut Criterion<MaxBytes>) {
///     criterion.bench_function("parse, maximum", |bencher| {
///         bencher.iter_custom(|times| MaxBytes::sum(times, || "a b".split(' ').collect::<Vec<_>>()))
///     });
/// }
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxBytes;

impl MaxBytes {
    /// Calls `work` a number of times, and returns the sum of the maximum of each call. The result of a
    /// call is dropped after it, and counts as in use until then.
    pub fn sum<R>(times: u64, mut work: impl FnMut() -> R) -> u64 {
        (0..times).map(|_| measure(&mut work).max_bytes).sum()
    }
}

/// The items of a [`Measurement`] that all figures have in common: they are numbers, which add up.
macro_rules! adds_up {
    ($format:expr) => {
        type Value = u64;

        fn add(&self, first: &u64, second: &u64) -> u64 {
            first + second
        }

        fn zero(&self) -> u64 {
            0
        }

        fn to_f64(&self, value: &u64) -> f64 {
            *value as f64
        }

        fn formatter(&self) -> &dyn ValueFormatter {
            &$format
        }
    };
}

impl Measurement for Allocations {
    type Intermediate = measure::Measurement;

    fn start(&self) -> Self::Intermediate {
        measure::Measurement::start()
    }

    fn end(&self, active: Self::Intermediate) -> u64 {
        active.finish().allocations
    }

    adds_up!(Format::Allocations);
}

impl Measurement for AllocatedBytes {
    type Intermediate = measure::Measurement;

    fn start(&self) -> Self::Intermediate {
        measure::Measurement::start()
    }

    fn end(&self, active: Self::Intermediate) -> u64 {
        active.finish().allocated_bytes
    }

    adds_up!(Format::Bytes);
}

impl Measurement for MaxBytes {
    type Intermediate = std::convert::Infallible;

    fn start(&self) -> Self::Intermediate {
        panic!(
            "plimsoll: criterion would divide a maximum by the number of iterations; use \
             `bencher.iter_custom(|times| MaxBytes::sum(times, || ..))`"
        )
    }

    fn end(&self, started: Self::Intermediate) -> u64 {
        match started {}
    }

    adds_up!(Format::Bytes);
}
