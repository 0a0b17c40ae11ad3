//! Resident memory of address ranges and of the process.

use std::fs::File;
use std::ops::Range;

use super::page_scan::{self, Piece};
use plimsoll_sys::os::files;
use plimsoll_sys::os::pages::page_size;
use plimsoll_sys::os::syscall::call3;

/// Returns the resident bytes of the process, by the kernel's counters. These may lag by some pages
/// per processor. Returns `None` without `/proc`. Takes two to seven microseconds.
#[inline]
pub fn total() -> Option<u64> {
    let text = files::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

/// Returns the resident bytes of the process that belong to no file, by the kernel's counters.
/// These may lag by some pages per processor. Memory shared with other processes is excluded, even
/// without a file. Returns `None` without `/proc`. Takes two to seven microseconds.
#[inline]
pub fn anonymous() -> Option<u64> {
    let text = files::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').skip(1).map(str::parse::<u64>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(of_files) * page_size() as u64)
}

/// A reader of page tables, by the kernel's rules for whole mappings: pages that were only ever
/// read share one zero page and are not resident. Kernels before Linux 6.7 lack the operation;
/// there [`resident`] is used, which counts such pages.
pub struct PageTables(Option<File>);

impl PageTables {
    /// Opens `/proc/self/pagemap`, if the system permits it.
    #[inline]
    pub fn open() -> Self {
        Self(files::open("/proc/self/pagemap").ok())
    }

    /// Returns the resident bytes of whole pages in `range`. Takes a system call for each 64
    /// pieces.
    #[inline]
    pub fn resident(&self, range: &Range<usize>) -> usize {
        let file = self.0.as_ref();
        file.and_then(|file| scan(file, range))
            .unwrap_or_else(|| resident(range))
    }
}

fn scan(file: &File, range: &Range<usize>) -> Option<usize> {
    let mut pieces = [Piece::default(); 64];
    let mut resident = 0;
    page_scan::each(file, range, 0, &mut pieces, |piece| {
        resident += piece.end - piece.start;
    })?;
    usize::try_from(resident).ok()
}

/// Returns the resident bytes of whole pages in `range`. A part of 2 MiB that contains unmapped
/// pages counts as 0. Takes a system call for each 2 MiB, or for more with larger pages.
pub fn resident(range: &Range<usize>) -> usize {
    let (mut pages, page) = ([0u8; 512], page_size());
    let (mut at, end) = (range.start & !(page - 1), range.end.next_multiple_of(page));
    let mut resident = 0;
    while at < end {
        let length = (end - at).min(pages.len() * page);
        // SAFETY: the kernel writes one byte per page, at most `pages.len()`.
        let failed = unsafe { call3(libc::SYS_mincore, at, length, pages.as_mut_ptr() as usize) };
        if failed == 0 {
            let there = pages[..length / page].iter();
            resident += there.filter(|&state| state & 1 != 0).count() * page;
        }
        at += length;
    }
    resident
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use plimsoll_sys::os::pages::PAGE;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Keeps tests of total residency from running concurrently with one that takes much memory.
    #[inline]
    pub fn lock_large() -> MutexGuard<'static, ()> {
        static LARGE: Mutex<()> = Mutex::new(());
        LARGE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // A sanitizer takes additional memory for each page that is touched.
    #[cfg(not(plimsoll_sanitized))]
    #[test]
    fn touched_pages_count_for_the_process() {
        const LENGTH: usize = 256 << 20;
        let _alone = lock_large();
        let before = anonymous().unwrap();
        let memory = plimsoll_sys::os::region::map(LENGTH).unwrap();
        // Other tests run concurrently.
        let near = |bytes: usize| {
            let grown = anonymous().unwrap() as i64 - before as i64;
            assert!(
                grown.abs_diff(bytes as i64) < LENGTH as u64 / 2,
                "{grown}, {bytes}"
            );
        };
        near(0);
        // SAFETY: within the mapping created above.
        unsafe { (memory as *mut u8).write_bytes(1, LENGTH) };
        near(LENGTH);
        // SAFETY: no other code uses the mapping.
        unsafe { libc::munmap(memory as *mut _, LENGTH) };
        near(0);
    }

    #[test]
    fn touched_pages_are_resident() {
        let length = 600 * PAGE;
        let memory = plimsoll_sys::os::region::map(length).unwrap();
        // SAFETY: no other code uses the mapping.
        unsafe { libc::madvise(memory as *mut _, length, libc::MADV_NOHUGEPAGE) };
        for page in [0, 7, 511, 512, 599] {
            // SAFETY: within the mapping created above.
            unsafe { ((memory + page * PAGE) as *mut u8).write(1) };
        }
        let range = memory..memory + length;
        assert!(resident(&range) >= 5 * PAGE);
        let tables = PageTables::open();
        assert_eq!(tables.resident(&range), resident(&range));
        // Pages that are only read count as resident for `resident` alone.
        // SAFETY: within the mapping created above.
        let zero = unsafe { ((memory + 300 * PAGE) as *const u8).read_volatile() };
        assert_eq!(zero, 0);
        if let Some(there) = tables.0.as_ref().and_then(|file| scan(file, &range)) {
            assert_eq!(there + PAGE, resident(&range));
        }
        let odd = memory + 7 * PAGE + 5..memory + 8 * PAGE - 5;
        assert_eq!(tables.resident(&odd), PAGE);
        // SAFETY: no other code uses the mapping.
        unsafe { libc::madvise(memory as *mut _, length, libc::MADV_DONTNEED) };
        assert_eq!(resident(&range), 0);
        assert_eq!(tables.resident(&range), 0);
        // SAFETY: no other code uses the mapping.
        unsafe { libc::munmap(memory as *mut _, length) };
        // The pages just unmapped may be in use again; the first pages of the address space are
        // not.
        let unmapped = PAGE..8 * PAGE;
        assert_eq!(resident(&unmapped), 0);
        assert_eq!(tables.resident(&unmapped), 0);
    }
}
