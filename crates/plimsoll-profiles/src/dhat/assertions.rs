//! Assertions that write a profile when they fail.

use super::{Phase, phase};

/// Asserts that a condition is true: [`dhat::assert!`](crate::dhat::assert).
///
/// Accepts a format string with arguments, as [`std::assert!`]. If the condition is false, the running
/// [`Profiler`](crate::dhat::Profiler) ends, prints its counts and writes its profile.
///
/// # Panics
/// If the condition is false. Without a profile, if no profiler is running in testing mode, or if an
/// earlier assertion ended it.
#[macro_export]
macro_rules! dhat_assert {
    ($condition:expr $(,)?) => {
        if $crate::dhat::is_violated(|| $condition) {
            ::std::panic!("dhat: assertion failed: {}", ::std::stringify!($condition));
        }
    };
    ($condition:expr, $($message:tt)+) => {
        if $crate::dhat::is_violated(|| $condition) {
            ::std::panic!(
                "dhat: assertion failed: {}: {}",
                ::std::stringify!($condition),
                ::std::format_args!($($message)+)
            );
        }
    };
}

/// Asserts that two expressions are equal: [`dhat::assert_eq!`](crate::dhat::assert_eq). Otherwise as
/// [`dhat::assert!`](crate::dhat::assert). Evaluates both again for the message of a failure.
#[macro_export]
macro_rules! dhat_assert_eq {
    ($left:expr, $right:expr $(,)?) => {
        if $crate::dhat::is_violated(|| $left == $right) {
            ::std::panic!(
                "dhat: assertion failed: `(left == right)`\n  left: `{:?}`,\n right: `{:?}`",
                $left,
                $right
            );
        }
    };
    ($left:expr, $right:expr, $($message:tt)+) => {
        if $crate::dhat::is_violated(|| $left == $right) {
            ::std::panic!(
                "dhat: assertion failed: `(left == right)`\n  left: `{:?}`,\n right: `{:?}`: {}",
                $left,
                $right,
                ::std::format_args!($($message)+)
            );
        }
    };
}

/// Asserts that two expressions differ: [`dhat::assert_ne!`](crate::dhat::assert_ne). Otherwise as
/// [`dhat::assert_eq!`](crate::dhat::assert_eq).
#[macro_export]
macro_rules! dhat_assert_ne {
    ($left:expr, $right:expr $(,)?) => {
        if $crate::dhat::is_violated(|| $left != $right) {
            ::std::panic!(
                "dhat: assertion failed: `(left != right)`\n  left: `{:?}`,\n right: `{:?}`",
                $left,
                $right
            );
        }
    };
    ($left:expr, $right:expr, $($message:tt)+) => {
        if $crate::dhat::is_violated(|| $left != $right) {
            ::std::panic!(
                "dhat: assertion failed: `(left != right)`\n  left: `{:?}`,\n right: `{:?}`: {}",
                $left,
                $right,
                ::std::format_args!($($message)+)
            );
        }
    };
}

// After the definitions: a macro has no path within its own crate.
pub use dhat_assert as assert;
pub use dhat_assert_eq as assert_eq;
pub use dhat_assert_ne as assert_ne;

/// Returns whether a condition is false; if so, ends the running profiler, which prints its counts and
/// writes its profile. For [`assert!`](crate::dhat::assert) and the like.
///
/// # Panics
/// If no profiler is running in testing mode, or if an earlier assertion ended it.
#[track_caller]
pub fn is_violated(condition: impl FnOnce() -> bool) -> bool {
    let is_testing = match &*phase() {
        Phase::Ready => panic!("dhat: asserting when no profiler is running"),
        Phase::Asserted => panic!("dhat: asserting after the profiler has asserted"),
        Phase::Running(running) => running.is_testing,
    };
    std::assert!(is_testing, "dhat: asserting while not in testing mode");
    // The lock is free: a condition may read the counts.
    if condition() {
        return false;
    }
    let before = std::mem::replace(&mut *phase(), Phase::Asserted);
    if let Phase::Running(running) = before {
        running.finish(true);
    }
    true
}
