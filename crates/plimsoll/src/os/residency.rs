//! How much of a range of addresses is in memory, and how much of the process.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::region::PAGE;
use super::syscall::call3;

/// Bytes of the process that are in memory and of no file, of the kernel's own account, which may
/// be some pages late for each processor; `None` if there is no `/proc`. What is shared with other
/// processes without a file is not in it. Two to seven microseconds.
pub(crate) fn anonymous() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').skip(1).map(str::parse::<u64>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(of_files) * PAGE as u64)
}

/// Looks at page tables, as the kernel does for what it says of whole mappings: pages that were
/// only ever read, and share one that is zero, are not in memory. Older kernels than Linux 6.7 have
/// no such thing; then it is [`resident`], which takes these as well.
pub(crate) struct PageTables(Option<File>);

impl PageTables {
    pub(crate) fn open() -> Self {
        Self(File::open("/proc/self/pagemap").ok())
    }

    /// How much of these whole pages is in memory, in bytes. A system call for each 64 pieces.
    pub(crate) fn resident(&self, range: &Range<usize>) -> usize {
        let file = self.0.as_ref();
        file.and_then(|file| scan(file, range))
            .unwrap_or_else(|| resident(range))
    }
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Piece {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    pieces: u64,
    most_pieces: u64,
    most_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `PAGEMAP_SCAN`.
const SCAN: usize = 0xc060_6610;

/// `PAGE_IS_PRESENT` and `PAGE_IS_PFNZERO`.
const PRESENT: u64 = 1 << 3;
const ZERO: u64 = 1 << 5;

fn scan(file: &File, range: &Range<usize>) -> Option<usize> {
    let (mut at, end) = (
        (range.start & !(PAGE - 1)) as u64,
        range.end.next_multiple_of(PAGE) as u64,
    );
    let mut pieces = [Piece::default(); 64];
    let mut resident = 0;
    while at < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: at,
            end,
            walk_end: 0,
            pieces: pieces.as_mut_ptr() as u64,
            most_pieces: pieces.len() as u64,
            most_pages: 0,
            inverted: ZERO,
            all_of: PRESENT | ZERO,
            any_of: 0,
            returned: PRESENT,
        };
        // SAFETY: the kernel writes to the argument, and as many pieces as is said.
        let found = unsafe {
            let argument = &raw mut scan as usize;
            call3(libc::SYS_ioctl, file.as_raw_fd() as usize, SCAN, argument)
        };
        let found = pieces.get(..usize::try_from(found).ok()?)?;
        resident += found
            .iter()
            .map(|piece| piece.end - piece.start)
            .sum::<u64>();
        if scan.walk_end <= at {
            return None;
        }
        at = scan.walk_end;
    }
    usize::try_from(resident).ok()
}

/// How much of these whole pages is in memory, in bytes; of those that are not mapped any more,
/// nothing. A system call for each 2 MiB.
pub(crate) fn resident(range: &Range<usize>) -> usize {
    let mut pages = [0u8; 512];
    let (mut at, end) = (range.start & !(PAGE - 1), range.end.next_multiple_of(PAGE));
    let mut resident = 0;
    while at < end {
        let length = (end - at).min(pages.len() * PAGE);
        // SAFETY: fills as many bytes as there are pages.
        let failed = unsafe { call3(libc::SYS_mincore, at, length, pages.as_mut_ptr() as usize) };
        if failed == 0 {
            let there = pages[..length / PAGE].iter();
            resident += there.filter(|&page| page & 1 != 0).count() * PAGE;
        }
        at += length;
    }
    resident
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Keeps tests of what is resident in all from running beside one that takes much memory.
    pub(in crate::os) fn lock_large() -> MutexGuard<'static, ()> {
        static LARGE: Mutex<()> = Mutex::new(());
        LARGE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // A sanitizer has memory of its own for what is touched.
    #[cfg(not(plimsoll_sanitized))]
    #[test]
    fn what_is_touched_is_of_the_process() {
        const LENGTH: usize = 256 << 20;
        let _alone = lock_large();
        let before = anonymous().unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let memory = crate::os::region::map(LENGTH, 0, access).unwrap();
        // Tests beside this one go on meanwhile.
        let near = |bytes: usize| {
            let grown = anonymous().unwrap() as i64 - before as i64;
            assert!(
                grown.abs_diff(bytes as i64) < LENGTH as u64 / 2,
                "{grown}, {bytes}"
            );
        };
        near(0);
        // SAFETY: within what was just mapped.
        unsafe { (memory as *mut u8).write_bytes(1, LENGTH) };
        near(LENGTH);
        // SAFETY: nobody else has it.
        unsafe { libc::munmap(memory as *mut _, LENGTH) };
        near(0);
    }

    #[test]
    fn what_is_touched_is_resident() {
        let length = 600 * PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let memory = crate::os::region::map(length, 0, access).unwrap();
        // SAFETY: nobody else has it.
        unsafe { libc::madvise(memory as *mut _, length, libc::MADV_NOHUGEPAGE) };
        for page in [0, 7, 511, 512, 599] {
            // SAFETY: within what was just mapped.
            unsafe { ((memory + page * PAGE) as *mut u8).write(1) };
        }
        let range = memory..memory + length;
        assert!(resident(&range) >= 5 * PAGE);
        let tables = PageTables::open();
        assert_eq!(tables.resident(&range), resident(&range));
        // What is only read is there for one of them.
        // SAFETY: within what is mapped.
        let zero = unsafe { ((memory + 300 * PAGE) as *const u8).read_volatile() };
        assert_eq!(zero, 0);
        if let Some(there) = tables.0.as_ref().and_then(|file| scan(file, &range)) {
            assert_eq!(there + PAGE, resident(&range));
        }
        let odd = memory + 7 * PAGE + 5..memory + 8 * PAGE - 5;
        assert_eq!(tables.resident(&odd), PAGE);
        // SAFETY: as above.
        unsafe { libc::madvise(memory as *mut _, length, libc::MADV_DONTNEED) };
        assert_eq!(resident(&range), 0);
        assert_eq!(tables.resident(&range), 0);
        // SAFETY: as above.
        unsafe { libc::munmap(memory as *mut _, length) };
        // Others may have mapped something there since; here nobody does.
        let unmapped = PAGE..8 * PAGE;
        assert_eq!(resident(&unmapped), 0);
        assert_eq!(tables.resident(&unmapped), 0);
    }
}
