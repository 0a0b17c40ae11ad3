//! Reads memory of this process that other threads may unmap at the same time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::pages::PAGE;
use super::syscall::call;

/// The number of words in a page.
pub const PAGE_WORDS: usize = PAGE / size_of::<usize>();

/// The most pages that one call copies.
pub const MAX_PAGES: usize = 16;

/// Copies memory from `address`, the start of a page, up to the first unreadable page. Copies at
/// most [`MAX_PAGES`] pages, and at most the length of `into`. Returns the number of bytes copied.
pub fn copy(address: usize, into: &mut [usize]) -> usize {
    let pages = (size_of_val(into) / PAGE).min(MAX_PAGES);
    // The system guarantees to copy each range completely or not at all.
    let ranges: [libc::iovec; MAX_PAGES] = std::array::from_fn(|page| libc::iovec {
        iov_base: address.wrapping_add(page * PAGE) as *mut _,
        iov_len: PAGE,
    });
    let place = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: pages * PAGE,
    };
    // SAFETY: `place` lies within `into`.
    match unsafe { read(place, &ranges[..pages]) } {
        Some(copied) => copied & !(PAGE - 1),
        None => copy_from_file(address, into, pages),
    }
}

/// Copies memory from `address`, of any alignment, if all of it is readable. Returns whether it is.
pub fn fill(address: usize, into: &mut [u8]) -> bool {
    let range = libc::iovec {
        iov_base: address as *mut _,
        iov_len: into.len(),
    };
    let place = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: `place` is all of `into`.
    match unsafe { read(place, &[range]) } {
        Some(copied) => copied == into.len(),
        None => memory_file().is_some_and(|file| file.read_exact_at(into, address as u64).is_ok()),
    }
}

/// Copies ranges of memory to one place. Returns the number of bytes copied, or `None` if the system
/// forbids the call.
///
/// # Safety
/// `place` is writable memory that nothing else uses.
unsafe fn read(place: libc::iovec, ranges: &[libc::iovec]) -> Option<usize> {
    let arguments = [
        std::process::id() as usize,
        &raw const place as usize,
        1,
        ranges.as_ptr() as usize,
        ranges.len(),
        0,
    ];
    // SAFETY: the kernel writes to `place` only, which this function's contract makes writable, and
    // fails on ranges that it cannot read.
    let copied = unsafe { call(libc::SYS_process_vm_readv, arguments) };
    match usize::try_from(copied) {
        Ok(copied) => Some(copied),
        Err(_) if copied == -(libc::EFAULT as isize) => Some(0),
        Err(_) => None,
    }
}

fn memory_file() -> Option<File> {
    File::open("/proc/self/mem").ok()
}

/// Returns the word at an address, which must be word-aligned; 0 if the memory is unmapped.
/// `memory` is a buffer of one page.
#[inline]
pub fn word(address: usize, memory: &mut [usize]) -> usize {
    let into = address % PAGE / size_of::<usize>();
    let copied = copy(address - address % PAGE, memory);
    if copied > 0 { memory[into] } else { 0 }
}

#[cold]
fn copy_from_file(address: usize, into: &mut [usize], pages: usize) -> usize {
    let Some(file) = memory_file() else {
        return 0;
    };
    // SAFETY: `into` holds at least `pages` pages, by the caller's computation, and words are valid
    // as bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), pages * PAGE) };
    let whole = |page: &usize| {
        let part = &mut bytes[page * PAGE..][..PAGE];
        file.read_exact_at(part, (address + page * PAGE) as u64)
            .is_ok()
    };
    (0..pages).take_while(whole).count() * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::region;

    #[test]
    fn memory_of_any_alignment_is_copied_if_all_is_readable() {
        let memory = region::map(2 * PAGE).unwrap();
        // SAFETY: accesses only the pages mapped above, which no other code uses.
        unsafe {
            ((memory + PAGE - 3) as *mut [u8; 3]).write(*b"abc");
            libc::mprotect((memory + PAGE) as *mut _, PAGE, libc::PROT_NONE);
        }
        let mut bytes = [0; 3];
        assert!(fill(memory + PAGE - 3, &mut bytes));
        assert_eq!(&bytes, b"abc");
        assert!(!fill(memory + PAGE - 2, &mut bytes), "into protected memory");
        assert!(!fill(0, &mut bytes));
        assert!(!fill(usize::MAX - 1, &mut bytes));
        assert!(fill(memory, &mut []));
    }

    #[test]
    fn both_methods_copy_the_readable_part() {
        let memory = region::map(3 * PAGE).unwrap();
        // SAFETY: accesses only the pages mapped above, which no other code uses.
        unsafe {
            ((memory + PAGE) as *mut usize).write(5);
            libc::munmap((memory + 2 * PAGE) as *mut _, PAGE);
            assert_eq!(
                libc::mmap(
                    (memory + 2 * PAGE) as *mut _,
                    PAGE,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                ) as usize,
                memory + 2 * PAGE
            );
        }
        let mut words = [1; 4 * PAGE / 8];
        assert_eq!(copy(memory, &mut words), 2 * PAGE);
        assert_eq!((words[0], words[PAGE / 8]), (0, 5));
        assert_eq!(copy(0, &mut words), 0);
        assert_eq!(copy(usize::MAX & !(PAGE - 1), &mut words), 0);
        // This file bypasses page protection, as debuggers do.
        assert!(copy_from_file(memory, &mut words, 4) >= 2 * PAGE);
        assert_eq!((words[0], words[PAGE / 8]), (0, 5));
        assert_eq!(copy_from_file(0, &mut words, 4), 0);
    }
}
