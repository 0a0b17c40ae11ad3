//! Memory in pages, by `mmap` and its relatives.

use std::ffi::c_int;

use super::errno;

/// The size of a page, in bytes.
pub const PAGE: usize = if cfg!(all(target_vendor = "apple", target_arch = "aarch64")) {
    16384
} else {
    4096
};

/// Returns the size of a page of this system, in bytes.
#[inline]
pub fn page_size() -> usize {
    PAGE
}

/// Returns whether Plimsoll supports the size of this system's pages.
pub fn is_page_size_supported() -> bool {
    true
}

const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Reserves inaccessible address space, at `hint` if that range is free. Returns `None` if the
/// system refuses.
#[inline]
pub fn reserve(length: usize, hint: usize) -> Option<usize> {
    map_with(length, hint, libc::PROT_NONE, 0)
}

/// Maps new private pages that are readable, writable and zero. Returns `None` if the system
/// refuses.
#[inline]
pub fn map(length: usize) -> Option<usize> {
    map_at(length, 0)
}

/// Maps as [`map`] does, at `hint` if that range is free.
#[inline]
pub fn map_at(length: usize, hint: usize) -> Option<usize> {
    map_with(length, hint, ACCESS, 0)
}

fn map_with(length: usize, at: usize, access: c_int, flags: c_int) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | flags;
    // SAFETY: without `MAP_FIXED`, an anonymous mapping replaces no existing one; with it, the
    // caller owns the range.
    let mapped = errno::keep(|| unsafe { libc::mmap(at as *mut _, length, access, flags, -1, 0) });
    (mapped != libc::MAP_FAILED).then_some(mapped as usize)
}

/// Makes reserved pages readable and writable. Returns `false` if the system refuses.
///
/// # Safety
/// The range is a part of the caller's reservation.
pub unsafe fn commit(address: usize, length: usize) -> bool {
    // SAFETY: the range is the caller's, by this function's contract.
    errno::keep(|| unsafe { libc::mprotect(address as *mut _, length, ACCESS) == 0 })
}

/// Unmaps pages.
///
/// # Safety
/// The range is whole pages that [`map`] or [`reserve`] returned, and is not used afterwards.
pub unsafe fn unmap(address: usize, length: usize) {
    // SAFETY: the range is the caller's, by this function's contract.
    errno::keep(|| unsafe { libc::munmap(address as *mut _, length) });
}

/// Returns the memory of pages to the system: they are zero when they are used again. Returns
/// `false` if the system refuses.
///
/// # Safety
/// The contents of the range are not used any more.
pub unsafe fn discard(address: usize, length: usize) -> bool {
    // Fresh pages in the same place: `madvise` keeps the contents on some systems.
    map_with(length, address, ACCESS, libc::MAP_FIXED).is_some()
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

/// Returns `None`: limits of the address space show when memory is reserved.
#[inline]
pub fn address_space_limit() -> Option<usize> {
    None
}

/// Returns the bytes of memory of the machine, if the system reports them.
pub fn of_machine() -> Option<u64> {
    // SAFETY: `sysconf` has no preconditions.
    let read = |name| errno::keep(|| unsafe { libc::sysconf(name) });
    let pages = u64::try_from(read(libc::_SC_PHYS_PAGES)).ok()?;
    let bytes = u64::try_from(read(libc::_SC_PAGESIZE)).ok()?;
    Some(pages * bytes).filter(|&bytes| bytes > 0)
}

/// Returns `None`: not available on this system.
#[inline]
pub fn map_shared(_length: usize) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_pages_are_zero_again() {
        let pages = map(4 * PAGE).unwrap();
        let second = (pages + PAGE) as *mut u8;
        // SAFETY: the pages are this test's.
        unsafe {
            second.write(7);
            assert_eq!(second.read(), 7);
            assert!(discard(pages + PAGE, PAGE));
            assert_eq!(second.read(), 0);
            second.write(8);
            unmap(pages, 4 * PAGE);
        }
    }

    #[test]
    fn a_machine_has_memory() {
        assert!(of_machine() > Some(1 << 20));
    }
}
