//! Assertions about the number of allocations.

use std::fmt;

use super::{Expected, measure_with_sites};

/// Asserts that a closure makes the given number of allocations on the calling thread, such as `3`,
/// `1..=3` or `..=3`, and returns what the closure returns. Otherwise panics with the sites of the allocations. Further arguments
/// are a format string and its arguments, as of [`assert!`].
///
/// Reallocations are allocations. The closure runs with the stack of each allocation recorded, see
/// [`measure_with_sites`].
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// let numbers = plimsoll::assert_allocs!(1, || (0..100).collect::<Vec<u64>>());
/// assert_eq!(numbers.len(), 100);
/// ```
///
/// ```should_panic
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// // A `HashMap` allocates anew when it grows.
/// plimsoll::assert_allocs!(1, || {
///     (0..100).map(|n| (n, n)).filter(|n| n.0 > 1).collect::<std::collections::HashMap<u64, u64>>()
/// });
/// ```
#[macro_export]
macro_rules! assert_allocs {
    ($expected:expr, $work:expr $(,)?) => {
        $crate::measure::assert_allocations(
            $expected,
            $work,
            ::std::format_args!("the number of allocations differs"),
        )
    };
    ($expected:expr, $work:expr, $($message:tt)+) => {
        $crate::measure::assert_allocations($expected, $work, ::std::format_args!($($message)+))
    };
}

/// Asserts that a closure makes no allocation on the calling thread, and returns what the closure
/// returns. Otherwise panics with the sites of the allocations. Frees are permitted. Further
/// arguments are as of [`assert_allocs!`](crate::assert_allocs).
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// let mut buffer = Vec::with_capacity(100);
/// plimsoll::assert_no_alloc!(|| buffer.push(1));
/// ```
#[macro_export]
macro_rules! assert_no_alloc {
    ($work:expr $(,)?) => {
        $crate::measure::assert_allocations(
            0,
            $work,
            ::std::format_args!("allocations where none may be"),
        )
    };
    ($work:expr, $($message:tt)+) => {
        $crate::measure::assert_allocations(0, $work, ::std::format_args!($($message)+))
    };
}

/// Does what [`assert_allocs!`](crate::assert_allocs) does.
///
/// # Panics
/// If `work` does not make the `expected` number of allocations; and as [`measure()`](super::measure()).
#[track_caller]
pub fn assert_allocations<R>(
    expected: impl Expected,
    work: impl FnOnce() -> R,
    message: fmt::Arguments<'_>,
) -> R {
    let measured = measure_with_sites(work);
    assert!(
        expected.includes(measured.allocations),
        "{message}: {expected:?} expected, made {measured}"
    );
    measured.result
}
