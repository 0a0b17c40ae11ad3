//! The allocator door of C: `malloc` and its like, for a library that is preloaded into a program.
//!
//! They are [`super::Alloc`] once more, but for what C does not say: the size of a block that is
//! freed. So a block counts as what it got, which the allocator below knows of any block; what was
//! asked for is counted beside it. A sampled block, which is not the allocator's, has that in the
//! last bytes of its slot.
//!
//! What is not inlined here is `extern "C"`: such functions do not unwind, so that a door jumps to
//! them, without a frame or registers of its own to restore.

mod high_water;
mod inner;
mod own_blocks;
mod sized;
mod slow;

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::thread::{self, Thread};
use super::{counts, size_class};
pub(crate) use high_water::{most, restart_peak};
pub(crate) use inner::is_in_allocator;
use inner::{ANYHOW, ENTERED, Entered, WITH_HEADERS, WITH_SIZES};
pub use inner::{Below, below, is_allocators};
use slow::{forget_large, free_slowly, place_slowly, realloc_slowly, usable_size_of_any};

/// The alignment of every block.
const ALIGN: usize = 16;

/// How a block is made.
#[derive(Clone, Copy)]
#[repr(C)]
enum Make {
    Plain,
    Zeroed,
    /// To a multiple of that, a power of two.
    Aligned(usize),
}

impl Make {
    fn align(self) -> usize {
        match self {
            Self::Aligned(align) => align.max(ALIGN),
            _ => ALIGN,
        }
    }

    /// # Safety
    /// None to keep: it is the allocator's to refuse what makes no sense.
    #[inline(always)]
    unsafe fn inside<const HOW: u8>(self, size: usize) -> *mut u8 {
        // SAFETY: the allocator's own functions.
        unsafe {
            match self {
                Self::Plain => inner::malloc::<HOW>(size),
                Self::Zeroed => inner::calloc::<HOW>(size),
                Self::Aligned(align) => inner::memalign::<HOW>(align, size),
            }
        }
    }
}

/// C's `malloc`.
///
/// # Safety
/// As C's: what comes back is freed by [`free`] alone.
#[inline(always)]
pub unsafe fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe {
        if inner::has_headers() {
            malloc_with_headers(size)
        } else {
            malloc_by_another(size)
        }
    }
}

/// Apart, so that neither way saves registers for the other.
#[inline(never)]
unsafe extern "C" fn malloc_with_headers(size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { place_counted::<WITH_HEADERS>(Make::Plain, size) }
}

#[inline(never)]
unsafe extern "C" fn malloc_by_another(size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe {
        if inner::has_sizes() {
            place_counted::<WITH_SIZES>(Make::Plain, size)
        } else {
            place_by_another(Make::Plain, size)
        }
    }
}

/// C's `calloc`.
///
/// # Safety
/// As for [`malloc`].
#[inline(always)]
pub unsafe fn calloc(count: usize, each: usize) -> *mut c_void {
    match count.checked_mul(each) {
        // SAFETY: the caller's.
        Some(size) => unsafe { place(Make::Zeroed, size) },
        None => out_of_memory(),
    }
}

/// C's `aligned_alloc` and `memalign`. What is no power of two is rounded up to one, as glibc does.
///
/// # Safety
/// As for [`malloc`].
pub unsafe fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        // SAFETY: the caller's.
        Some(align) => unsafe { place(Make::Aligned(align), size) },
        None => refuse(libc::EINVAL),
    }
}

/// C's `posix_memalign`.
///
/// # Safety
/// As for [`malloc`]; `to` can be written to.
pub unsafe fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align % size_of::<usize>() != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's. It does not change `errno`.
    unsafe {
        let errno = *libc::__errno_location();
        let block = place(Make::Aligned(align), size);
        *libc::__errno_location() = errno;
        if block.is_null() {
            return libc::ENOMEM;
        }
        *to = block;
    }
    0
}

/// C's `free`.
///
/// # Safety
/// As C's.
#[inline(always)]
pub unsafe fn free(block: *mut c_void) {
    let block = block.cast::<u8>();
    // SAFETY: the caller's.
    unsafe {
        if inner::has_headers() {
            free_counted::<WITH_HEADERS>(block);
        } else {
            free_to_another(block);
        }
    }
}

#[inline(never)]
unsafe extern "C" fn free_to_another(block: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        if inner::has_sizes() {
            free_counted::<WITH_SIZES>(block);
        } else if inner::is_inside() {
            inner::free::<ANYHOW>(block);
        } else {
            free_counted::<ENTERED>(block);
        }
    }
}

#[inline(always)]
unsafe fn free_counted<const HOW: u8>(block: *mut u8) {
    // SAFETY: the thread's own storage; the block is the caller's. The area is not null when the
    // limit lets a block pass, and null is below it.
    unsafe {
        let route = &*thread::route();
        if (block as usize) < route.limit.get() {
            return free_slowly(block);
        }
        let entered = Entered::<HOW>::begin();
        let size = inner::usable::<HOW>(block);
        if size > size_class::LARGEST_STEP {
            drop(entered);
            return free_larger(block, size);
        }
        counts::free_small(route.area.get(), size);
        inner::free_usable::<HOW>(block, size);
    }
}

/// C's `realloc`.
///
/// # Safety
/// As C's.
pub unsafe fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: the caller's.
        return unsafe { malloc(size) };
    }
    let block = block.cast::<u8>();
    // SAFETY: the caller's.
    unsafe {
        if inner::has_headers() {
            realloc_counted::<WITH_HEADERS>(block, size)
        } else {
            realloc_by_another(block, size)
        }
    }
}

#[inline(never)]
unsafe extern "C" fn realloc_by_another(block: *mut u8, size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe {
        if inner::is_inside() {
            inner::realloc::<ANYHOW>(block, size).cast()
        } else {
            realloc_counted::<ENTERED>(block, size)
        }
    }
}

#[inline(always)]
unsafe fn realloc_counted<const HOW: u8>(block: *mut u8, size: usize) -> *mut c_void {
    // SAFETY: as for `free_counted`.
    unsafe {
        let countdown = &*thread::countdown();
        let left = countdown.get().wrapping_sub(size as i64);
        countdown.set(left);
        if left < 0 || (block as usize) < (*thread::route()).limit.get() || size == 0 {
            return realloc_slowly(block, size);
        }
        let entered = Entered::<HOW>::begin();
        let old_size = inner::usable::<HOW>(block);
        if old_size > size_class::LARGEST {
            drop(entered);
            return realloc_slowly(block, size);
        }
        let moved = inner::realloc::<HOW>(block, size);
        if moved.is_null() {
            countdown.set(countdown.get().wrapping_add(size as i64));
            return moved.cast();
        }
        let new_size = inner::usable::<HOW>(moved);
        drop(entered);
        count_realloc(old_size, new_size, size);
        moved.cast()
    }
}

/// C's `reallocarray`.
///
/// # Safety
/// As C's.
pub unsafe fn reallocarray(block: *mut c_void, count: usize, each: usize) -> *mut c_void {
    match count.checked_mul(each) {
        // SAFETY: the caller's.
        Some(size) => unsafe { realloc(block, size) },
        None => out_of_memory(),
    }
}

/// C's `malloc_usable_size`.
///
/// # Safety
/// As C's.
#[inline(always)]
pub unsafe fn usable_size(block: *mut c_void) -> usize {
    let block = block.cast::<u8>();
    // SAFETY: the thread's own storage; the block is the caller's, and the allocator's if the limit
    // lets it pass.
    unsafe {
        if (block as usize) < (*thread::route()).limit.get() {
            usable_size_of_any(block)
        } else {
            inner::usable::<ANYHOW>(block)
        }
    }
}

/// A block for Plimsoll itself, where its own heap has no room. It is in no count.
///
/// # Safety
/// As for `GlobalAlloc::alloc`; it is given back to [`free_uncounted`].
pub(crate) unsafe fn allocate_uncounted(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's. A block of `memalign` may be another allocator's than `free` is.
    unsafe {
        if layout.align() <= ALIGN {
            inner::malloc::<ANYHOW>(layout.size())
        } else {
            inner::memalign::<ANYHOW>(layout.align(), layout.size())
        }
    }
}

/// # Safety
/// The block is one of [`allocate_uncounted`].
pub(crate) unsafe fn free_uncounted(block: *mut u8) {
    // SAFETY: the caller's.
    unsafe { inner::free::<ANYHOW>(block) }
}

fn out_of_memory() -> *mut c_void {
    refuse(libc::ENOMEM)
}

fn refuse(error: c_int) -> *mut c_void {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = error };
    null_mut()
}

#[inline(always)]
unsafe fn place(make: Make, size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe {
        if inner::has_headers() {
            place_counted::<WITH_HEADERS>(make, size)
        } else {
            place_by_another(make, size)
        }
    }
}

#[inline(never)]
unsafe extern "C" fn place_by_another(make: Make, size: usize) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe {
        if inner::has_sizes() {
            place_counted::<WITH_SIZES>(make, size)
        } else if inner::is_inside() {
            make.inside::<ANYHOW>(size).cast()
        } else {
            place_counted::<ENTERED>(make, size)
        }
    }
}

#[inline(always)]
unsafe fn place_counted<const HOW: u8>(make: Make, size: usize) -> *mut c_void {
    // SAFETY: the thread's own storage. The area is not null when the countdown lets an allocation
    // pass.
    unsafe {
        let countdown = &*thread::countdown();
        let left = countdown.get().wrapping_sub(size as i64);
        countdown.set(left);
        if left < 0 {
            return place_slowly(make, size);
        }
        let entered = Entered::<HOW>::begin();
        let block = make.inside::<HOW>(size);
        if block.is_null() {
            countdown.set(countdown.get().wrapping_add(size as i64));
            return block.cast();
        }
        let got = match make {
            Make::Aligned(_) => inner::usable::<HOW>(block),
            _ => inner::usable_of_new::<HOW>(block, size),
        };
        drop(entered);
        if got > size_class::LARGEST_STEP {
            return placed_larger(block, got, size);
        }
        let area = (*thread::route()).area.get();
        counts::malloc_small(area, got);
        counts::asked_in(area, size);
        block.cast()
    }
}

/// Counts an allocation above [`size_class::LARGEST_STEP`] on the common path, and returns it.
#[inline(never)]
extern "C" fn placed_larger(block: *mut u8, got: usize, asked: usize) -> *mut c_void {
    match size_class::of(got) {
        // SAFETY: the common path is only taken with the thread's area.
        Some(class) => unsafe {
            let area = (*thread::route()).area.get();
            counts::malloc_in(area, class);
            counts::asked_in(area, asked);
        },
        None => count_malloc(Thread::current(), got, asked),
    }
    block.cast()
}

fn count_malloc(thread: Thread, got: usize, asked: usize) {
    counts::malloc(thread.writer(), got);
    counts::asked(thread.writer(), asked);
}

#[inline(never)]
extern "C" fn count_realloc(old_size: usize, new_size: usize, asked: usize) {
    let thread = Thread::current();
    counts::realloc(thread.writer(), old_size, new_size);
    counts::asked(thread.writer(), asked);
}

/// A free above [`size_class::LARGEST_STEP`], on the common path.
#[inline(never)]
unsafe extern "C" fn free_larger(block: *mut u8, size: usize) {
    match size_class::of(size) {
        // SAFETY: the common path is only taken with the thread's area.
        Some(class) => unsafe { counts::free_in((*thread::route()).area.get(), class) },
        None => {
            forget_large(block, size);
            counts::free(Thread::current().writer(), size);
        }
    }
    // SAFETY: the caller's.
    unsafe { inner::free::<ANYHOW>(block) }
}
