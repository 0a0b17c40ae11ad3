//! Reads memory of this process that other threads may unmap at the same time.

use std::os::unix::fs::FileExt;

use plimsoll_sys::os::files;
use plimsoll_sys::os::pages::PAGE;
use plimsoll_sys::os::syscall::call;

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
    let arguments = [
        plimsoll_sys::os::process_id() as usize,
        &raw const place as usize,
        1,
        ranges.as_ptr() as usize,
        pages,
        0,
    ];
    // SAFETY: the kernel writes at most `pages` pages to `into`, which is that long, and fails on
    // ranges that it cannot read.
    let copied = unsafe { call(libc::SYS_process_vm_readv, arguments) };
    match usize::try_from(copied) {
        Ok(copied) => copied & !(PAGE - 1),
        Err(_) if copied == -(libc::EFAULT as isize) => 0,
        // The system forbids the call.
        Err(_) => copy_from_file(address, into, pages),
    }
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
    let Ok(file) = files::open("/proc/self/mem") else {
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
    use plimsoll_sys::os::region;

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
