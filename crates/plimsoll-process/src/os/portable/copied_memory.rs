//! Copies of memory that other threads may unmap: not available on this system.

use plimsoll_sys::os::pages::PAGE;

/// The number of words in a page.
pub const PAGE_WORDS: usize = PAGE / size_of::<usize>();

/// The most pages that one call would copy.
pub const MAX_PAGES: usize = 16;

/// Copies nothing, and returns 0.
#[inline]
pub fn copy(_: usize, _: &mut [usize]) -> usize {
    0
}

/// Returns 0, as for memory that is unmapped.
#[inline]
pub fn word(_: usize, _: &mut [usize]) -> usize {
    0
}
