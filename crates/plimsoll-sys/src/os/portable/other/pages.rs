//! Memory in pages, from the system's allocator. Every byte of it is in use at once, so it is only
//! handed out in small amounts.

use std::alloc::{GlobalAlloc, Layout, System};

/// The unit of memory, in bytes.
pub const PAGE: usize = 4096;

/// Returns the size of a page of this system, in bytes.
#[inline]
pub fn page_size() -> usize {
    PAGE
}

/// Returns whether Plimsoll supports the size of this system's pages.
pub fn is_page_size_supported() -> bool {
    true
}

/// The most that one call of [`reserve`] returns, in bytes.
const MAX_RESERVED: usize = 1 << 20;

/// Allocates memory that serves as a reservation. Returns `None` for more than a mebibyte, or for a
/// certain address.
pub fn reserve(length: usize, hint: usize) -> Option<usize> {
    if length > MAX_RESERVED || hint != 0 {
        return None;
    }
    map(length)
}

/// Allocates memory that is zero. Returns `None` if the system refuses.
pub fn map(length: usize) -> Option<usize> {
    let layout = Layout::from_size_align(length, PAGE).ok()?;
    if length == 0 {
        return None;
    }
    // SAFETY: the size is not zero.
    let memory = unsafe { System.alloc_zeroed(layout) };
    (!memory.is_null()).then_some(memory as usize)
}

/// Maps as [`map`] does, except at a certain address.
pub fn map_at(length: usize, hint: usize) -> Option<usize> {
    if hint == 0 { map(length) } else { None }
}

/// Does nothing, and returns `true`: reservations are accessible from the beginning.
///
/// # Safety
/// The range is a part of the caller's reservation.
#[inline]
pub unsafe fn commit(_: usize, _: usize) -> bool {
    true
}

/// Frees memory.
///
/// # Safety
/// The range is all memory that one call of [`map`] or [`reserve`] returned, and is not used
/// afterwards.
pub unsafe fn unmap(address: usize, length: usize) {
    // SAFETY: `map` allocated the memory with this layout, by this function's contract.
    unsafe {
        let layout = Layout::from_size_align_unchecked(length, PAGE);
        System.dealloc(address as *mut u8, layout);
    }
}

/// Returns `false`: memory cannot be returned in parts.
///
/// # Safety
/// The contents of the range are not used any more.
#[inline]
pub unsafe fn discard(_: usize, _: usize) -> bool {
    false
}

/// Returns `false`: the system does not do that.
///
/// # Safety
/// The contents of the range are not used any more.
#[inline]
pub unsafe fn discard_lazily(_: usize, _: usize) -> bool {
    false
}

/// Returns `false`: the system chooses the size of its pages.
#[inline]
pub fn allow_huge(_: usize, _: usize) -> bool {
    false
}

/// Returns `false`: the system chooses the size of its pages.
#[inline]
pub fn forbid_huge(_: usize, _: usize) -> bool {
    false
}

/// Returns `false`: whether the system overcommits memory is unknown.
#[inline]
pub fn are_overcommitted() -> bool {
    false
}

/// Returns `false`: memory of files is not available on this system.
#[inline]
pub fn populate(_: usize, _: usize) -> bool {
    false
}

/// Returns `None`: the system has no such limit.
#[inline]
pub fn address_space_limit() -> Option<usize> {
    None
}

/// Returns `None`: the system does not report it.
#[inline]
pub fn of_machine() -> Option<u64> {
    None
}

/// Returns `None`: not available on this system.
#[inline]
pub fn map_shared(_length: usize) -> Option<usize> {
    None
}
