//! Memory in pages, by direct system calls.

use super::files;
use super::syscall::{call, call3};
use crate::primitives::{AtomicUsize, Ordering};

/// The smallest size of a page, in bytes. All of these bytes from a multiple of it on are readable, or none. Ranges
/// that the system protects, releases or moves consist of pages of [`page_size`].
pub const PAGE: usize = 4096;

/// Returns the size of a page of this system, a multiple of [`PAGE`], in bytes. Makes no system call.
#[inline]
pub fn page_size() -> usize {
    // Each value is the same, whichever thread stores it.
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            let size = supported(reported_size()).unwrap_or(PAGE);
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

/// Returns whether Plimsoll supports the size of this system's pages. Otherwise, it gets no memory.
pub fn is_page_size_supported() -> bool {
    supported(reported_size()).is_some()
}

/// Returns the size that the system reports in the auxiliary vector.
fn reported_size() -> usize {
    // SAFETY: `getauxval` has no preconditions.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

/// Returns a size of pages if it is supported.
fn supported(size: usize) -> Option<usize> {
    const LARGEST: usize = 64 << 10;
    (size.is_power_of_two() && (PAGE..=LARGEST).contains(&size)).then_some(size)
}

/// Reserves inaccessible address space, at `hint` if that range is free. Returns `None` if the
/// system refuses.
#[inline]
pub fn reserve(length: usize, hint: usize) -> Option<usize> {
    map_with(length, hint, libc::PROT_NONE)
}

/// Maps new private pages that are readable, writable and zero, without overcommit accounting.
/// Returns `None` if the system refuses.
#[inline]
pub fn map(length: usize) -> Option<usize> {
    map_at(length, 0)
}

/// Maps as [`map`] does, at `hint` if that range is free.
#[inline]
pub fn map_at(length: usize, hint: usize) -> Option<usize> {
    map_with(length, hint, libc::PROT_READ | libc::PROT_WRITE)
}

/// Maps new pages that are readable, writable and zero, and that this process shares with the children of
/// later forks. Returns `None` if the system refuses.
pub fn map_shared(length: usize) -> Option<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    map_as(libc::MAP_SHARED, length, 0, access)
}

fn map_with(length: usize, hint: usize, access: i32) -> Option<usize> {
    map_as(libc::MAP_PRIVATE, length, hint, access)
}

#[inline]
fn map_as(kind: i32, length: usize, hint: usize, access: i32) -> Option<usize> {
    if !is_page_size_supported() {
        return None;
    }
    let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let arguments = [hint, length, access as usize, flags as usize, usize::MAX, 0];
    // SAFETY: without `MAP_FIXED`, an anonymous mapping replaces no existing one.
    let result = unsafe { call(libc::SYS_mmap, arguments) };
    (result > 0).then_some(result as usize)
}

/// Makes reserved pages readable and writable. Returns `false` if the system refuses.
///
/// # Safety
/// The range is a part of the caller's reservation.
pub unsafe fn commit(address: usize, length: usize) -> bool {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: the range is the caller's, by this function's contract.
    unsafe { call3(libc::SYS_mprotect, address, length, access) == 0 }
}

/// Unmaps pages.
///
/// # Safety
/// The range is whole pages that [`map`] or [`reserve`] returned, and is not used afterwards.
pub unsafe fn unmap(address: usize, length: usize) {
    // SAFETY: the range is the caller's, by this function's contract.
    unsafe { call3(libc::SYS_munmap, address, length, 0) };
}

/// Returns the memory of pages to the system: they are zero when they are used again. Returns
/// `false` if the system refuses.
///
/// # Safety
/// The contents of the range are not used any more.
pub unsafe fn discard(address: usize, length: usize) -> bool {
    let advice = libc::MADV_DONTNEED as usize;
    // SAFETY: the contents may be dropped, by this function's contract.
    unsafe { call3(libc::SYS_madvise, address, length, advice) == 0 }
}

/// Lets the system take the memory of pages when it needs some: each page keeps its contents or is
/// zero when it is used again. Returns `false` if the system refuses.
///
/// # Safety
/// The contents of the range are not used any more.
pub unsafe fn discard_lazily(address: usize, length: usize) -> bool {
    let advice = libc::MADV_FREE as usize;
    // SAFETY: the contents may be dropped, by this function's contract.
    unsafe { call3(libc::SYS_madvise, address, length, advice) == 0 }
}

/// Lets the system back a range by huge pages where the whole page is accessible and has no memory yet.
/// Returns `false` if the system does not have them.
pub fn allow_huge(address: usize, length: usize) -> bool {
    let advice = libc::MADV_HUGEPAGE as usize;
    // SAFETY: the advice does not change the contents.
    unsafe { call3(libc::SYS_madvise, address, length, advice) == 0 }
}

/// Has the system back a range by small pages from its next use on. Returns `false` if the system
/// refuses.
pub fn forbid_huge(address: usize, length: usize) -> bool {
    let advice = libc::MADV_NOHUGEPAGE as usize;
    // SAFETY: the advice does not change the contents.
    unsafe { call3(libc::SYS_madvise, address, length, advice) == 0 }
}

/// Returns whether the system overcommits memory.
pub fn are_overcommitted() -> bool {
    let mut mode = [0_u8; 1];
    let mode = files::read_into(c"/proc/sys/vm/overcommit_memory", &mut mode);
    matches!(mode, Some(&[mode]) if mode != b'2')
}

/// The value of `MADV_POPULATE_WRITE` (Linux 5.14), which older headers of the C library lack.
pub const MADV_POPULATE_WRITE: usize = 23;

/// Allocates the pages of a file's mapping without changing them. On a full disk, this returns
/// `false`; without it, the first writer would receive `SIGBUS`. Kernels before 5.14 lack the
/// operation; there the whole file was allocated earlier.
pub fn populate(address: usize, length: usize) -> bool {
    // SAFETY: populating a mapping does not change its contents.
    let refused = unsafe { call3(libc::SYS_madvise, address, length, MADV_POPULATE_WRITE) };
    refused == 0 || refused == -(libc::EINVAL as isize)
}

/// Returns the limit of the process's address space in bytes; `None` without one.
pub fn address_space_limit() -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let arguments = [
        0,
        libc::RLIMIT_AS as usize,
        0,
        &raw mut limit as usize,
        0,
        0,
    ];
    // SAFETY: `prlimit64` only reads the limit of this process, into a struct of the right layout.
    let failed = unsafe { call(libc::SYS_prlimit64, arguments) };
    let is_limited = failed == 0 && limit.rlim_cur != libc::RLIM_INFINITY;
    is_limited.then_some(limit.rlim_cur as usize)
}

/// Returns the bytes of memory of the machine, if the system reports them.
pub fn of_machine() -> Option<u64> {
    // SAFETY: `sysconf` has no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let pages = u64::try_from(pages).ok().filter(|&pages| pages > 0)?;
    Some(pages * page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sizes_than_the_system_has_are_not_supported() {
        for size in [4096, 16 << 10, 64 << 10] {
            assert_eq!(supported(size), Some(size));
        }
        for size in [0, 1, 2048, 4097, 12288, 128 << 10, 1 << 63] {
            assert_eq!(supported(size), None);
        }
    }

    #[test]
    fn memory_of_the_machine_agrees_with_the_system() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.split_whitespace().nth(1).unwrap();
        assert_eq!(of_machine(), Some(total.parse::<u64>().unwrap() * 1024));
    }
}
