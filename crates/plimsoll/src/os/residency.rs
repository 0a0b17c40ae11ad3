//! How much of a range of addresses is in memory, and how much of the process.

use std::ops::Range;

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
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_of_the_process() {
        const LENGTH: usize = 256 << 20;
        let before = anonymous().unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let memory = crate::os::region::map(LENGTH, 0, access).unwrap();
        // Tests beside this one go on meanwhile.
        let near = |bytes: usize| {
            let grown = anonymous().unwrap() as i64 - before as i64;
            assert!(grown.abs_diff(bytes as i64) < 64 << 20, "{grown}, {bytes}");
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
        for page in [0, 7, 511, 512, 599] {
            // SAFETY: within what was just mapped.
            unsafe { ((memory + page * PAGE) as *mut u8).write(1) };
        }
        // SAFETY: nobody else has it.
        unsafe { libc::madvise(memory as *mut _, length, libc::MADV_NOHUGEPAGE) };
        assert!(resident(&(memory..memory + length)) >= 5 * PAGE);
        // SAFETY: as above.
        unsafe { libc::munmap(memory as *mut _, length) };
        assert_eq!(resident(&(memory..memory + length)), 0);
    }
}
