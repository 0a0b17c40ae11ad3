//! Reading memory of this process that may go away meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::region::PAGE;
use super::syscall::call;

/// Words of a page.
pub(crate) const PAGE_WORDS: usize = PAGE / size_of::<usize>();

/// The most pages that are copied at once.
const MOST: usize = 16;

/// Copies what lies at `address`, which is at the start of a page, up to the first page that cannot
/// be read; returns how many bytes that were. At most [`MOST`] pages.
pub(crate) fn copy(address: usize, into: &mut [usize]) -> usize {
    let pages = (size_of_val(into) / PAGE).min(MOST);
    // The system promises to copy each range whole or not at all.
    let ranges: [libc::iovec; MOST] = std::array::from_fn(|page| libc::iovec {
        iov_base: address.wrapping_add(page * PAGE) as *mut _,
        iov_len: PAGE,
    });
    let place = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: pages * PAGE,
    };
    let arguments = [
        std::process::id() as usize,
        &raw const place as usize,
        1,
        ranges.as_ptr() as usize,
        pages,
        0,
    ];
    // SAFETY: the kernel writes to `into`, not beyond its end, and reads what can be read.
    let copied = unsafe { call(libc::SYS_process_vm_readv, arguments) };
    match usize::try_from(copied) {
        Ok(copied) => copied & !(PAGE - 1),
        Err(_) if copied == -(libc::EFAULT as isize) => 0,
        // The system does not let anybody.
        Err(_) => copy_from_file(address, into, pages),
    }
}

/// What is at an address, a multiple of the size of a word, where there may be nothing any more; 0
/// then. `memory` is a page.
pub(crate) fn word(address: usize, memory: &mut [usize]) -> usize {
    let into = address % PAGE / size_of::<usize>();
    let copied = copy(address - address % PAGE, memory);
    if copied > 0 { memory[into] } else { 0 }
}

#[cold]
fn copy_from_file(address: usize, into: &mut [usize], pages: usize) -> usize {
    let Ok(file) = File::open("/proc/self/mem") else {
        return 0;
    };
    // SAFETY: words that are bytes as well.
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
    fn both_ways_copy_what_there_is() {
        let memory = region::map(3 * PAGE, 0, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        // SAFETY: the pages just mapped.
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
        // Debuggers may read what the process may not.
        assert!(copy_from_file(memory, &mut words, 4) >= 2 * PAGE);
        assert_eq!((words[0], words[PAGE / 8]), (0, 5));
        assert_eq!(copy_from_file(0, &mut words, 4), 0);
    }
}
