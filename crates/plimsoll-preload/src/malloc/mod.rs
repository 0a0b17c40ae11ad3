//! `malloc` interposition: `malloc` and its relatives, for a library that is preloaded into a
//! program.
//!
//! These entry points do the same as [`plimsoll_core::alloc::Alloc`], but C does not pass the size of a block to
//! `free`. So a block counts at its usable size, which the underlying allocator knows of any block.
//! The requested size is counted as well.
//!
//! A sampled block stays in the underlying allocator: the program may release it by a name that is not interposed, such as
//! `__libc_free`, or by a pointer to the C library's own function. So each free of a block whose address
//! [may belong to a sampled one](sampled_inside::may_have) searches for it.
//!
//! Functions that are not inlined here are `extern "C"`. Such functions do not unwind, so an entry
//! point can jump to them without a frame or saved registers.

mod cold;
mod internal_blocks;
mod peak;
mod program;
mod sized;
mod underlying;

use std::alloc::Layout;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use cold::{alloc_cold, free_cold, realloc_cold, usable_size_of_any};
use plimsoll_core::alloc::interposition::{Interposition, Peak, UnderlyingKind};
use plimsoll_core::alloc::thread::Thread;
use plimsoll_core::alloc::{counts, process, sampled_inside};
use plimsoll_core::internal_scope::{self, Route};
use plimsoll_ledger::size_class;
pub(crate) use program::{has_allocator, redirect};
pub(crate) use underlying::is_allocators;
use underlying::{ENTERED, Entered, PLAIN_CALL, WITH_HEADERS, WITH_SIZES};

/// This library, as readings know it.
pub(crate) struct Library;

impl Interposition for Library {
    fn underlying_kind(&self) -> UnderlyingKind {
        underlying::underlying_kind()
    }

    fn is_allocators(&self, function: *const c_void) -> bool {
        underlying::is_allocators(function)
    }

    fn is_linked_redirected(&self) -> bool {
        program::is_linked_redirected()
    }

    fn why_not_redirected(&self) -> Option<String> {
        program::why_not_redirected().map(|why| why.to_string())
    }

    fn path(&self) -> Option<String> {
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        let here = self::malloc as unsafe fn(usize) -> *mut c_void as *const c_void;
        // SAFETY: `found` is writable, and zero is valid for its pointers. If the call succeeds, the
        // name is a string that stays as long as this code.
        unsafe {
            if libc::dladdr(here, found.as_mut_ptr()) == 0 {
                return None;
            }
            let path = CStr::from_ptr(found.assume_init().dli_fname);
            Some(path.to_string_lossy().into_owned())
        }
    }

    fn peak(&self, live_bytes: u64) -> Peak {
        peak::peak(live_bytes)
    }

    fn restart_peak(&self, live_bytes: u64) {
        peak::restart_peak(live_bytes);
    }
}

/// The alignment of every block.
const ALIGN: usize = 16;

/// The kind of an allocation.
#[derive(Clone, Copy)]
#[repr(C)]
enum Make {
    Plain,
    Zeroed,
    /// Aligned to this power of two.
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
    /// None: the allocator refuses invalid arguments.
    #[inline(always)]
    unsafe fn inside<const MODE: u8>(self, size: usize) -> *mut u8 {
        // SAFETY: these are the underlying allocator's functions, which accept any size and power
        // of two.
        unsafe {
            match self {
                Self::Plain => underlying::malloc::<MODE>(size),
                Self::Zeroed => underlying::calloc::<MODE>(size),
                Self::Aligned(align) => underlying::memalign::<MODE>(align, size),
            }
        }
    }
}

/// C's `malloc`.
///
/// # Safety
/// As C's: the block is freed by [`free`] alone.
#[inline(always)]
pub unsafe fn malloc(size: usize) -> *mut c_void {
    // SAFETY: a plain allocation has no condition.
    unsafe {
        if underlying::has_headers() {
            place_counted::<WITH_HEADERS>(Make::Plain, size)
        } else {
            malloc_by_another(size)
        }
    }
}

#[inline(never)]
unsafe extern "C" fn malloc_by_another(size: usize) -> *mut c_void {
    // SAFETY: a plain allocation has no condition.
    unsafe {
        if underlying::has_sizes() {
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
        // SAFETY: a zeroed allocation has no condition; the product did not overflow.
        Some(size) => unsafe { place(Make::Zeroed, size) },
        None => out_of_memory(),
    }
}

/// C's `aligned_alloc` and `memalign`. Rounds the alignment up to a power of two, as glibc does.
///
/// # Safety
/// As for [`malloc`].
pub unsafe fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        // SAFETY: the alignment was just rounded to a power of two.
        Some(align) => unsafe { place(Make::Aligned(align), size) },
        None => refuse(libc::EINVAL),
    }
}

/// C's `posix_memalign`.
///
/// # Safety
/// As for [`malloc`]; `to` is valid for a write.
pub unsafe fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: `to` is valid for a write, by this function's contract. `errno` keeps its value, as
    // POSIX requires.
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
    // SAFETY: `block` is null or live, by this function's contract.
    unsafe {
        if underlying::has_headers() {
            free_counted::<WITH_HEADERS>(block);
        } else {
            free_to_another(block);
        }
    }
}

#[inline(never)]
unsafe extern "C" fn free_to_another(block: *mut u8) {
    // SAFETY: `block` is null or live, by the contract of `free`.
    unsafe {
        if underlying::has_sizes() {
            free_counted::<WITH_SIZES>(block);
        } else if underlying::is_inside() {
            underlying::free::<PLAIN_CALL>(block);
        } else {
            free_counted::<ENTERED>(block);
        }
    }
}

#[inline(always)]
unsafe fn free_counted<const MODE: u8>(block: *mut u8) {
    // SAFETY: the route is the thread's own storage; `block` is null or live, by the contract of
    // `free`. Null is below the limit, and the area is not null if a block is above the limit.
    unsafe {
        let route = &*internal_scope::route();
        if (block as usize) < route.limit.get() {
            return free_below_limit::<MODE>(block);
        }
        if sampled_inside::may_have(block as usize) {
            return free_cold(block);
        }
        free_underlying::<MODE>(route, block);
    }
}

/// Frees a block of the underlying allocator that is not sampled, on a thread with an area.
#[inline(always)]
unsafe fn free_underlying<const MODE: u8>(route: &Route, block: *mut u8) {
    // SAFETY: the area is the thread's and not null, and `block` is a live block of the underlying
    // allocator, by this function's contract.
    unsafe {
        let entered = Entered::<MODE>::begin();
        let size = underlying::usable::<MODE>(block);
        if size > size_class::LARGEST_STEP {
            drop(entered);
            return free_larger(block, size);
        }
        counts::free_small(route.area.get(), underlying::small::<MODE>(size));
        underlying::free_usable::<MODE>(block, size);
    }
}

/// Frees a block below the limit of its thread's route. In a program at a fixed address, such as
/// Debian's Python, these are nearly all blocks.
#[inline(never)]
unsafe extern "C" fn free_below_limit<const MODE: u8>(block: *mut u8) {
    // SAFETY: the route is the thread's own storage; `block` is null or live, by the contract of
    // `free`.
    unsafe {
        let route = &*internal_scope::route();
        let is_plain =
            process::is_below_own_range(block) && !sampled_inside::may_have(block as usize);
        if is_plain && !route.area.get().is_null() {
            free_underlying::<MODE>(route, block);
        } else {
            free_cold(block);
        }
    }
}

/// C's `realloc`.
///
/// # Safety
/// As C's.
pub unsafe fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: `malloc` has no condition on the size.
        return unsafe { malloc(size) };
    }
    let block = block.cast::<u8>();
    // SAFETY: `block` is not null, so it is live, by this function's contract.
    unsafe {
        if underlying::has_headers() {
            realloc_counted::<WITH_HEADERS>(block, size)
        } else {
            realloc_by_another(block, size)
        }
    }
}

#[inline(never)]
unsafe extern "C" fn realloc_by_another(block: *mut u8, size: usize) -> *mut c_void {
    // SAFETY: `block` is live, by the contract of `realloc`.
    unsafe {
        if underlying::is_inside() {
            underlying::realloc::<PLAIN_CALL>(block, size).cast()
        } else {
            realloc_counted::<ENTERED>(block, size)
        }
    }
}

#[inline(always)]
unsafe fn realloc_counted<const MODE: u8>(block: *mut u8, size: usize) -> *mut c_void {
    // SAFETY: the route and the countdown are the thread's own storage; `block` is live, by the
    // contract of `realloc`. The area is not null if neither diverts the call.
    unsafe {
        let countdown = &*internal_scope::countdown();
        let left = countdown.get().wrapping_sub(size as i64);
        countdown.set(left);
        if left < 0
            || (block as usize) < (*internal_scope::route()).limit.get()
            || size == 0
            || sampled_inside::may_have(block as usize)
        {
            return realloc_uncommon::<MODE>(left, block, size);
        }
        realloc_underlying::<MODE>(block, size)
    }
}

/// Reallocates a block below the limit of its thread's route, as [`free_below_limit`], or on the cold
/// path.
#[inline(never)]
unsafe extern "C" fn realloc_uncommon<const MODE: u8>(
    left: i64,
    block: *mut u8,
    size: usize,
) -> *mut c_void {
    // SAFETY: `block` is live, by the contract of `realloc`. A thread without an area has a negative
    // countdown.
    unsafe {
        if left >= 0
            && size != 0
            && process::is_below_own_range(block)
            && !sampled_inside::may_have(block as usize)
        {
            realloc_underlying::<MODE>(block, size)
        } else {
            realloc_cold(block, size)
        }
    }
}

/// Reallocates a block of the underlying allocator, on a thread with an area, which was charged.
#[inline(always)]
unsafe fn realloc_underlying<const MODE: u8>(block: *mut u8, size: usize) -> *mut c_void {
    // SAFETY: the countdown is the thread's own storage, and `block` is a live block of the underlying
    // allocator, by this function's contract.
    unsafe {
        let countdown = &*internal_scope::countdown();
        let entered = Entered::<MODE>::begin();
        let old_size = underlying::usable::<MODE>(block);
        if old_size > size_class::LARGEST {
            drop(entered);
            return realloc_cold(block, size);
        }
        let moved = underlying::realloc::<MODE>(block, size);
        if moved.is_null() {
            countdown.set(countdown.get().wrapping_add(size as i64));
            return moved.cast();
        }
        let new_size = underlying::usable::<MODE>(moved);
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
        // SAFETY: `block` is null or live, by this function's contract; the product did not
        // overflow.
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
    // SAFETY: the route is the thread's own storage; `block` is null or live, by this function's
    // contract. A block above the limit is the underlying allocator's.
    unsafe {
        if (block as usize) < (*internal_scope::route()).limit.get() {
            usable_size_of_any(block)
        } else {
            underlying::usable::<PLAIN_CALL>(block)
        }
    }
}

/// Allocates a block for Plimsoll itself when its own heap is full. The block is not counted.
///
/// # Safety
/// As for `GlobalAlloc::alloc`; the block is freed by [`free_uncounted`].
pub unsafe fn allocate_uncounted(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is valid and the block goes back to `free_uncounted`, by this function's
    // contract. `memalign` and `free` may belong to different allocators.
    unsafe {
        if layout.align() <= ALIGN {
            underlying::malloc::<PLAIN_CALL>(layout.size())
        } else {
            underlying::memalign::<PLAIN_CALL>(layout.align(), layout.size())
        }
    }
}

/// # Safety
/// [`allocate_uncounted`] returned the block.
pub unsafe fn free_uncounted(block: *mut u8) {
    // SAFETY: the block comes from `allocate_uncounted`, by this function's contract.
    unsafe { underlying::free::<PLAIN_CALL>(block) }
}

fn out_of_memory() -> *mut c_void {
    refuse(libc::ENOMEM)
}

fn refuse(error: c_int) -> *mut c_void {
    // SAFETY: `errno` is the thread's own variable.
    unsafe { *libc::__errno_location() = error };
    null_mut()
}

#[inline(always)]
unsafe fn place(make: Make, size: usize) -> *mut c_void {
    // SAFETY: `make` holds a valid alignment, which the entry points check.
    unsafe {
        if underlying::has_headers() {
            place_counted::<WITH_HEADERS>(make, size)
        } else {
            place_by_another(make, size)
        }
    }
}

#[inline(never)]
unsafe extern "C" fn place_by_another(make: Make, size: usize) -> *mut c_void {
    // SAFETY: `make` holds a valid alignment, which the entry points check.
    unsafe {
        if underlying::has_sizes() {
            place_counted::<WITH_SIZES>(make, size)
        } else if underlying::is_inside() {
            make.inside::<PLAIN_CALL>(size).cast()
        } else {
            place_counted::<ENTERED>(make, size)
        }
    }
}

#[inline(always)]
unsafe fn place_counted<const MODE: u8>(make: Make, size: usize) -> *mut c_void {
    // SAFETY: countdown and route are the thread's own storage. The area is not null if the
    // countdown is not negative.
    unsafe {
        let countdown = &*internal_scope::countdown();
        let left = countdown.get().wrapping_sub(size as i64);
        countdown.set(left);
        if left < 0 {
            return alloc_cold(make, size);
        }
        let entered = Entered::<MODE>::begin();
        let block = make.inside::<MODE>(size);
        if block.is_null() {
            countdown.set(countdown.get().wrapping_add(size as i64));
            return block.cast();
        }
        let got = match make {
            Make::Aligned(_) => underlying::usable::<MODE>(block),
            _ => underlying::usable_of_new::<MODE>(block, size),
        };
        drop(entered);
        if got > size_class::LARGEST_STEP {
            return placed_larger(block, got, size);
        }
        let area = (*internal_scope::route()).area.get();
        counts::malloc_small(area, underlying::small::<MODE>(got));
        counts::asked_in(area, size);
        block.cast()
    }
}

/// Counts an allocation above [`size_class::LARGEST_STEP`] on the fast path, and returns it.
#[inline(never)]
extern "C" fn placed_larger(block: *mut u8, got: usize, asked: usize) -> *mut c_void {
    // SAFETY: the fast path requires the thread's area.
    unsafe {
        let area = (*internal_scope::route()).area.get();
        match size_class::of(got) {
            Some(class) => counts::malloc_in(area, class),
            None => counts::malloc_large(area, got),
        }
        counts::asked_in(area, asked);
    }
    block.cast()
}

fn count_malloc(thread: Thread, got: usize, asked: usize) {
    counts::malloc(thread.writer(), got);
    counts::asked(thread.writer(), asked);
}

#[inline(never)]
extern "C" fn count_realloc(old_size: usize, new_size: usize, asked: usize) {
    // SAFETY: the route is the thread's own storage; its area is the thread's, or null.
    let area = unsafe { (*internal_scope::route()).area.get() };
    if !area.is_null() && old_size.max(new_size) <= size_class::LARGEST {
        // SAFETY: the area is the thread's.
        unsafe {
            counts::realloc_larger(area, old_size, new_size);
            counts::asked_in(area, asked);
        }
        return;
    }
    let thread = Thread::current();
    counts::realloc(thread.writer(), old_size, new_size);
    counts::asked(thread.writer(), asked);
}

/// Frees a block above [`size_class::LARGEST_STEP`] on the fast path.
#[inline(never)]
unsafe extern "C" fn free_larger(block: *mut u8, size: usize) {
    match size_class::of(size) {
        // SAFETY: the fast path requires the thread's area.
        Some(class) => unsafe { counts::free_in((*internal_scope::route()).area.get(), class) },
        None => {
            plimsoll_core::wakeup::before_release(size);
            // SAFETY: the same. Both calls leave the area as it is.
            unsafe { counts::free_large((*internal_scope::route()).area.get(), size) };
        }
    }
    // SAFETY: `block` is a live block of the underlying allocator: the addresses of sampled and
    // internal blocks were excluded before the call.
    unsafe { underlying::free::<PLAIN_CALL>(block) }
}
