//! The usable sizes of jemalloc's blocks, by the sizes that were requested.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// jemalloc's variable by which it rounds large sizes to pages: its usual setting since 5.3.1.
pub(super) const ROUNDS_TO_PAGES: &CStr = c"_rjem_je_opt_disable_large_size_classes";

/// The address of that variable; 0 if the version has none.
static ROUNDS_TO_PAGES_AT: AtomicUsize = AtomicUsize::new(0);

/// Stores the address of the variable by which large sizes are rounded to pages.
pub(super) fn rounds_to_pages_by(address: usize) {
    ROUNDS_TO_PAGES_AT.store(address, Ordering::Relaxed);
}

/// Returns whether large sizes are rounded to pages.
#[cold]
fn rounds_to_pages() -> bool {
    let flag = ROUNDS_TO_PAGES_AT.load(Ordering::Relaxed) as *const u8;
    // SAFETY: the program has a variable of one byte there, which jemalloc changes at its start only.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

const PAGE: usize = 4096;
const LARGEST_SMALL: usize = 14336;
const SMALLEST_LARGE: usize = 16384;

/// Returns the usable size of a request of `size` bytes: four classes for each power of two, or pages.
#[inline(always)]
pub(super) fn class_of(size: usize) -> usize {
    if size <= 8 {
        return 8;
    }
    if size > LARGEST_SMALL && rounds_to_pages() {
        return size.next_multiple_of(PAGE);
    }
    // Of twice the size, rounded up to a power of two.
    let exponent = (2 * size - 1).ilog2();
    let step = 1 << exponent.saturating_sub(3).max(4);
    (size + (step - 1)) & !(step - 1)
}

/// Returns the usable size of a request with jemalloc's flags, whose low bits are the exponent of the
/// alignment.
#[inline(always)]
pub(super) fn with_flags(size: usize, flags: usize) -> usize {
    match flags & 63 {
        0 => class_of(size),
        exponent => aligned(size, 1 << exponent),
    }
}

/// Returns the usable size of an aligned request.
pub(super) fn aligned(size: usize, align: usize) -> usize {
    if size <= LARGEST_SMALL && align <= PAGE {
        let class = class_of(size.next_multiple_of(align.max(1)));
        if class < SMALLEST_LARGE {
            return class;
        }
    }
    class_of(size).max(SMALLEST_LARGE)
}
