//! The request `PAGEMAP_SCAN` of `/proc/self/pagemap`, which reads page tables. Linux 6.7 and later.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use plimsoll_sys::os::pages::page_size;
use plimsoll_sys::os::syscall::call3;

/// The kernel's `struct page_region`: pages with the same categories.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) categories: u64,
}

/// The kernel's `struct pm_scan_arg`.
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

/// The request's number.
const SCAN: usize = 0xc060_6610;

/// The category `PAGE_IS_FILE`: pages of files and of shared memory. The kernel reads more memory for it
/// than for the others.
pub(super) const FILE: u64 = 1 << 2;

/// The categories `PAGE_IS_PRESENT` and `PAGE_IS_PFNZERO`.
const PRESENT: u64 = 1 << 3;
const ZERO: u64 = 1 << 5;

/// Calls `found` with the pieces of resident pages in `range`, ordered by address, without the zero page,
/// which all pages share that were only ever read. Pieces differ by the `categories`. Takes a system call for
/// each `pieces.len()` of them. Returns `None` if the kernel refuses the request.
pub(super) fn each(
    file: &File,
    range: &Range<usize>,
    categories: u64,
    pieces: &mut [Piece],
    mut found: impl FnMut(&Piece),
) -> Option<()> {
    let (mut at, end) = (
        (range.start & !(page_size() - 1)) as u64,
        range.end.next_multiple_of(page_size()) as u64,
    );
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
            returned: PRESENT | categories,
        };
        // SAFETY: the kernel writes to `scan`, and at most `most_pieces` pieces to `pieces`.
        let count = unsafe {
            let argument = &raw mut scan as usize;
            call3(libc::SYS_ioctl, file.as_raw_fd() as usize, SCAN, argument)
        };
        pieces
            .get(..usize::try_from(count).ok()?)?
            .iter()
            .for_each(&mut found);
        if scan.walk_end <= at {
            return None;
        }
        at = scan.walk_end;
    }
    Some(())
}
