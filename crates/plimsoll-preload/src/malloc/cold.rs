//! Cold paths: samples, blocks outside the underlying allocator, threads that are not set up.

use std::ffi::c_void;

use super::underlying::{self, PLAIN_CALL};
use super::{Make, count_malloc, count_realloc, internal_blocks, peak, usable_size};
use plimsoll_core::alloc::counts;
use plimsoll_core::alloc::samples::{forget_anywhere, give_back, record_anywhere, take_anywhere};
use plimsoll_core::alloc::thread::Thread;
use plimsoll_core::sampler::{Sample, Weight};
use plimsoll_ledger::size_class;

/// C's `malloc_usable_size` of a null pointer, or of a block that may not be the underlying
/// allocator's.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn usable_size_of_any(block: *mut u8) -> usize {
    if block.is_null() {
        0
    } else if plimsoll_core::internal_heap::contains(block as usize) {
        // SAFETY: `block` lies in the internal heap and is live, by C's contract for `block`.
        unsafe { internal_blocks::size(block) }
    } else {
        // SAFETY: the underlying allocator made `block`, which is live, by C's contract for
        // `block`.
        unsafe { underlying::usable::<PLAIN_CALL>(block) }
    }
}

/// Frees a null pointer, or a block that may be sampled or not the underlying allocator's, or a block of a thread that
/// is not set up.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn free_cold(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: `block` is live, by C's contract for `free`.
    unsafe {
        if plimsoll_core::internal_heap::contains(block as usize) {
            return internal_blocks::free(block);
        }
        let thread = Thread::current();
        let size = underlying::usable::<PLAIN_CALL>(block);
        if !thread.in_own_scope() {
            plimsoll_core::wakeup::before_release(size);
        }
        forget_anywhere(block, size_class::counted_size(size));
        counts::free(thread.writer(), size);
        underlying::free::<PLAIN_CALL>(block);
    }
}

/// Makes an allocation that is sampled, or Plimsoll's own, or by a thread that is not set up.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn alloc_cold(make: Make, size: usize) -> *mut c_void {
    // SAFETY: the entry points have checked `make`; any size may be requested.
    unsafe { place_uncharged(Thread::allocating(size), make, size) }
}

/// Makes an allocation that is not yet charged to the thread.
///
/// # Safety
/// As for [`super::malloc`].
pub(super) unsafe fn place_uncharged(thread: Thread, make: Make, size: usize) -> *mut c_void {
    if thread.in_own_scope() {
        if thread.is_uncounted() {
            // SAFETY: `make` holds a valid alignment, by this function's contract.
            return unsafe { make.inside::<PLAIN_CALL>(size) }.cast();
        }
        let block = internal_blocks::place(make, size);
        if !block.is_null() {
            return block.cast();
        }
    }
    // SAFETY: `make` and `size` are checked as `malloc`'s contract requires.
    unsafe {
        let Placed { block, stands_for } = place_charged(thread, make, size);
        if !block.is_null() {
            count_malloc(thread, usable_size(block.cast()), size);
            sampled(stands_for);
        }
        block.cast()
    }
}

/// The result of an allocation.
struct Placed {
    /// Null if the allocation failed.
    block: *mut u8,
    /// The bytes that it stands for as a sample; 0 if it is not sampled.
    stands_for: u64,
}

impl Placed {
    fn unsampled(block: *mut u8) -> Self {
        Self {
            block,
            stands_for: 0,
        }
    }
}

/// Completes a counted allocation that stands for `stands_for` bytes as a sample; 0 means
/// unsampled.
#[inline(always)]
pub(super) fn sampled(stands_for: u64) {
    if stands_for != 0 {
        was_sampled(stands_for);
    }
}

/// Completes a sampled allocation. A separate function: it takes some KiB of stack, and few
/// allocations need it.
#[cold]
#[inline(never)]
fn was_sampled(stands_for: u64) {
    let counting = plimsoll_core::deferred_signals::Counting::begin();
    peak::allocated(stands_for);
    // If a signal handler interrupted Plimsoll on this thread, the outermost event wakes the
    // maintenance thread.
    if counting.is_outermost() {
        plimsoll_core::wakeup::after_sample();
    }
}

/// Charges an allocation to the thread, takes a sample if the charge requires one, and places the
/// block. The caller updates the ledger.
unsafe fn place_charged(thread: Thread, make: Make, size: usize) -> Placed {
    let Some(weight) = thread.charge(size) else {
        // SAFETY: `make` holds a valid alignment, by this function's contract.
        return Placed::unsampled(unsafe { make.inside::<PLAIN_CALL>(size) });
    };
    // SAFETY: `make` holds a valid alignment, by this function's contract.
    let block = unsafe { make.inside::<PLAIN_CALL>(size) };
    if block.is_null() {
        return Placed::unsampled(block);
    }
    // SAFETY: the block was just allocated.
    unsafe { note(thread, block, weight) }
}

/// Records the sampled allocation of a block.
///
/// # Safety
/// The block belongs to the underlying allocator.
unsafe fn note(thread: Thread, block: *mut u8, weight: Weight) -> Placed {
    // SAFETY: `block` is a live block of the underlying allocator, by this function's contract.
    let got = unsafe { underlying::usable::<PLAIN_CALL>(block) };
    let counted = size_class::counted_size(got);
    let sample = Sample::take(counted, weight);
    record_anywhere(thread, sample, counted, block);
    Placed {
        block,
        stands_for: weight.times(counted),
    }
}

/// Makes a reallocation that is sampled, or of a sampled or large block, or to size zero, or by a
/// thread that is not set up.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn realloc_cold(block: *mut u8, size: usize) -> *mut c_void {
    let thread = Thread::allocating(size);
    // SAFETY: `block` is live, by C's contract for `realloc`.
    unsafe {
        if plimsoll_core::internal_heap::contains(block as usize) {
            return internal_blocks::realloc(thread, block, size).cast();
        }
        if size == 0 {
            return realloc_to_nothing(block);
        }
        let old_size = usable_size(block.cast());
        let Placed { block, stands_for } = realloc_inside(thread, block, old_size, size);
        if !block.is_null() {
            count_realloc(old_size, usable_size(block.cast()), size);
            sampled(stands_for);
        }
        block.cast()
    }
}

/// Reallocates to size zero: some allocators free the block, others return a new one.
unsafe fn realloc_to_nothing(block: *mut u8) -> *mut c_void {
    // SAFETY: `block` is live, by C's contract for `realloc`.
    unsafe {
        let old_size = underlying::usable::<PLAIN_CALL>(block);
        forget_anywhere(block, size_class::counted_size(old_size));
        let moved = underlying::realloc::<PLAIN_CALL>(block, 0);
        let writer = Thread::current().writer();
        if moved.is_null() {
            counts::free(writer, old_size);
        } else {
            counts::realloc(writer, old_size, underlying::usable::<PLAIN_CALL>(moved));
        }
        moved.cast()
    }
}

/// Reallocates a block of the underlying allocator.
unsafe fn realloc_inside(thread: Thread, block: *mut u8, old_size: usize, size: usize) -> Placed {
    let old_counted = size_class::counted_size(old_size);
    let weight = thread.charge(size);
    let old_sample = take_anywhere(block);
    // SAFETY: `block` is a live block of the underlying allocator, by this function's contract.
    let moved = unsafe { underlying::realloc::<PLAIN_CALL>(block, size) };
    if moved.is_null() {
        if let Some(old_sample) = old_sample {
            give_back(old_sample, old_counted, block);
        }
        return Placed::unsampled(moved);
    }
    if let Some(old_sample) = old_sample {
        old_sample.record_replaced(old_counted);
    }
    match weight {
        // SAFETY: `moved` was just reallocated.
        Some(weight) => unsafe { note(thread, moved, weight) },
        None => Placed::unsampled(moved),
    }
}
