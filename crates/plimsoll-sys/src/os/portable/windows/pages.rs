//! Memory in pages, by `VirtualAlloc` and its relatives.

use super::api::{self, keep_error};

/// The size of a page, in bytes.
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

/// Reserves inaccessible address space, at `hint` if that range is free. Returns `None` if the
/// system refuses.
pub fn reserve(length: usize, hint: usize) -> Option<usize> {
    allocate(hint, length, api::MEM_RESERVE, api::PAGE_NOACCESS)
}

/// Maps new private pages that are readable, writable and zero. Returns `None` if the system
/// refuses.
pub fn map(length: usize) -> Option<usize> {
    map_at(length, 0)
}

/// Maps as [`map`] does, at `hint`.
pub fn map_at(length: usize, hint: usize) -> Option<usize> {
    let kind = api::MEM_RESERVE | api::MEM_COMMIT;
    allocate(hint, length, kind, api::PAGE_READWRITE)
}

fn allocate(address: usize, length: usize, kind: u32, access: u32) -> Option<usize> {
    // SAFETY: the call allocates free pages, or commits reserved ones of the caller.
    let got = keep_error(|| unsafe { api::VirtualAlloc(address as *mut _, length, kind, access) });
    (!got.is_null()).then_some(got as usize)
}

/// Makes reserved pages readable and writable. Returns `false` if the system refuses.
///
/// # Safety
/// The range is a part of the caller's reservation.
pub unsafe fn commit(address: usize, length: usize) -> bool {
    allocate(address, length, api::MEM_COMMIT, api::PAGE_READWRITE).is_some()
}

/// Unmaps pages.
///
/// # Safety
/// The range is all pages that one call of [`map`] or [`reserve`] returned, and is not used
/// afterwards.
pub unsafe fn unmap(address: usize, _: usize) {
    // SAFETY: the range is the caller's, by this function's contract.
    keep_error(|| unsafe { api::VirtualFree(address as *mut _, 0, api::MEM_RELEASE) });
}

/// Returns the memory of pages to the system: they are zero when they are used again. Returns
/// `false` if the system refuses.
///
/// # Safety
/// The contents of the range are not used any more.
pub unsafe fn discard(address: usize, length: usize) -> bool {
    // SAFETY: the contents may be dropped, by this function's contract.
    unsafe {
        keep_error(|| api::VirtualFree(address as *mut _, length, api::MEM_DECOMMIT) != 0)
            && commit(address, length)
    }
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

/// Returns the bytes of memory of the machine, if the system reports them.
pub fn of_machine() -> Option<u64> {
    let mut status = api::MemoryStatus {
        length: size_of::<api::MemoryStatus>() as u32,
        load: 0,
        total: 0,
        others: [0; 6],
    };
    // SAFETY: the struct has the length that it states.
    let found = keep_error(|| unsafe { api::GlobalMemoryStatusEx(&raw mut status) });
    (found != 0).then_some(status.total)
}

/// Returns `None`: not available on this system.
#[inline]
pub fn map_shared(_length: usize) -> Option<usize> {
    None
}
