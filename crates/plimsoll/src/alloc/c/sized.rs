//! What jemalloc has beside C's functions: what a block of a size would get, and a free that is
//! told what the block got. Both save looking the block up, which is most of what there is to do
//! for it.

use std::ffi::{CStr, c_int};

use crate::alloc::size_class::LARGEST_STEP;
use crate::primitives::{AtomicPtr, AtomicU8, Ordering};

type Sdallocx = unsafe extern "C" fn(*mut u8, usize, c_int);
type Nallocx = unsafe extern "C" fn(usize, c_int) -> usize;

static SDALLOCX: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// What blocks get, by what they are made for, both in steps of 8 bytes: the allocator's classes
/// end on such steps.
static USABLE: [AtomicU8; LARGEST_STEP / 8 + 1] =
    [const { AtomicU8::new(0) }; LARGEST_STEP / 8 + 1];

/// Looks whether the allocator has such functions, among which is one that nobody but jemalloc has,
/// and asks it how large its blocks would be.
///
/// # Safety
/// `find` finds functions by their names, of one allocator.
pub(super) unsafe fn is_there(find: impl Fn(&CStr) -> Option<*mut ()>) -> bool {
    let (Some(_), Some(nallocx), Some(sdallocx)) =
        (find(c"mallctl"), find(c"nallocx"), find(c"sdallocx"))
    else {
        return false;
    };
    // SAFETY: the function is of that type.
    let nallocx = unsafe { std::mem::transmute::<*mut (), Nallocx>(nallocx) };
    for (step, usable) in USABLE.iter().enumerate() {
        // It is not to be asked of nothing, which gets what the smallest gets.
        let size = (8 * step).max(1);
        // SAFETY: any size but zero may be asked of.
        let got = unsafe { nallocx(size, 0) };
        if got % 8 != 0 || got > LARGEST_STEP {
            return false;
        }
        usable.store((got / 8) as u8, Ordering::Relaxed);
    }
    SDALLOCX.store(sdallocx, Ordering::Relaxed);
    true
}

/// The bytes that a block gets which is made for so many, without an alignment; `None` where that
/// is not known.
#[inline(always)]
pub(super) fn usable_of(size: usize) -> Option<usize> {
    if size > LARGEST_STEP {
        return None;
    }
    let steps = USABLE[size.div_ceil(8)].load(Ordering::Relaxed);
    Some(8 * usize::from(steps))
}

/// Frees a block that has so many bytes.
///
/// # Safety
/// The caller's, as for `free`, and [`is_there`] was true.
#[inline(always)]
pub(super) unsafe fn free(block: *mut u8, usable: usize) {
    // SAFETY: the caller's; the function is of that type.
    unsafe {
        let free = std::mem::transmute::<*mut (), Sdallocx>(SDALLOCX.load(Ordering::Relaxed));
        free(block, usable, 0);
    }
}
