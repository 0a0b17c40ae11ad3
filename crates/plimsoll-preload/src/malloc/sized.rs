//! jemalloc's extensions of C's functions: the usable size of a request, and a free that takes the
//! usable size. Both avoid a look-up of the block, which is most of the cost.

use std::ffi::{CStr, c_int};

use plimsoll_sys::primitives::{AtomicPtr, AtomicU8, Ordering};

use plimsoll_ledger::size_class::LARGEST_STEP;

type Sdallocx = unsafe extern "C" fn(*mut u8, usize, c_int);
type Nallocx = unsafe extern "C" fn(usize, c_int) -> usize;

static SDALLOCX: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Usable size by requested size, both in steps of 8 bytes: the allocator's classes end on such
/// steps.
static USABLE: [AtomicU8; LARGEST_STEP / 8 + 1] =
    [const { AtomicU8::new(0) }; LARGEST_STEP / 8 + 1];

/// Looks these functions up and records the usable size of each class. Returns false if the
/// allocator lacks one of them (only jemalloc has all), or if its sizes do not fit the table.
///
/// # Safety
/// `find` looks functions up by name, all in the same allocator.
pub(super) unsafe fn is_there(find: impl Fn(&CStr) -> Option<*mut ()>) -> bool {
    let (Some(_), Some(nallocx), Some(sdallocx)) =
        (find(c"mallctl"), find(c"nallocx"), find(c"sdallocx"))
    else {
        return false;
    };
    // SAFETY: jemalloc's `nallocx` has this type.
    let nallocx = unsafe { std::mem::transmute::<*mut (), Nallocx>(nallocx) };
    for (step, usable) in USABLE.iter().enumerate() {
        // `nallocx` does not accept zero; size zero gets the smallest class.
        let size = (8 * step).max(1);
        // SAFETY: the size is not zero.
        let got = unsafe { nallocx(size, 0) };
        if got % 8 != 0 || got > LARGEST_STEP {
            return false;
        }
        usable.store((got / 8) as u8, Ordering::Relaxed);
    }
    SDALLOCX.store(sdallocx, Ordering::Relaxed);
    true
}

/// Returns the usable size of a block requested with `size` bytes and no alignment; `None` if
/// unknown.
#[inline(always)]
pub(super) fn usable_of(size: usize) -> Option<usize> {
    if size > LARGEST_STEP {
        return None;
    }
    let steps = USABLE[size.div_ceil(8)].load(Ordering::Relaxed);
    Some(8 * usize::from(steps))
}

/// Frees a block whose usable size is `usable` bytes.
///
/// # Safety
/// As for `free`; and [`is_there`] returned true.
#[inline(always)]
pub(super) unsafe fn free(block: *mut u8, usable: usize) {
    // SAFETY: `is_there` found the function, which has this type; `block` is live and of that
    // usable size, by this function's contract.
    unsafe {
        let free = std::mem::transmute::<*mut (), Sdallocx>(SDALLOCX.load(Ordering::Relaxed));
        free(block, usable, 0);
    }
}
