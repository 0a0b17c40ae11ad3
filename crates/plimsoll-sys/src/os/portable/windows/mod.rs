//! Windows, through functions of `kernel32`.

mod api;
pub mod clocks;
pub mod environment;
pub mod pages;
pub mod thread_end;

use std::ops::Range;

/// Whether [`barrier`] does anything.
pub(super) const HAS_BARRIER: bool = true;

/// Executes a full fence in every running thread of the process.
pub(super) fn barrier() {
    // SAFETY: the function has no preconditions.
    unsafe { api::FlushProcessWriteBuffers() };
}

/// Returns the calling thread's stack.
pub fn own_stack() -> Option<Range<usize>> {
    let (mut low, mut high) = (0, 0);
    // SAFETY: both places are writable.
    unsafe { api::GetCurrentThreadStackLimits(&raw mut low, &raw mut high) };
    (low < high).then_some(low..high)
}
