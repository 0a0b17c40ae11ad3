//! Systems that are neither Unix nor Windows, such as WASI, through the standard library.

pub mod clocks;
pub mod environment;
pub mod pages;
pub mod thread_end;

use std::ops::Range;

/// Whether [`barrier`] does anything.
pub(super) const HAS_BARRIER: bool = false;

/// Does nothing.
pub(super) fn barrier() {}

/// Returns `None`: the system does not report stacks.
pub fn own_stack() -> Option<Range<usize>> {
    None
}
