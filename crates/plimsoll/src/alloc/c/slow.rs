//! What is rare: samples, blocks that are not the allocator's, threads that are not set up.

use std::ffi::c_void;

use super::inner::{self, ANYHOW};
use super::{ALIGN, Make, count_malloc, count_realloc, high_water, own_blocks, usable_size};
use crate::alloc::sampled_large::SAMPLED_LARGE;
use crate::alloc::thread::Thread;
use crate::alloc::{counts, large_sample, record_small, sampled_blocks, size_class};
use crate::sampler::{Sample, Weight};

/// The size of a block's note in its slot.
const NOTE: usize = 8;

/// C's `malloc_usable_size` of nothing, or of a block that may not be the allocator's.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn usable_size_of_any(block: *mut u8) -> usize {
    if block.is_null() {
        0
    } else if sampled_blocks::contains(block as usize) {
        // SAFETY: the caller's: it is a block.
        unsafe { noted_size(block) }
    } else if crate::own::contains(block as usize) {
        // SAFETY: as above.
        unsafe { own_blocks::size(block) }
    } else {
        // SAFETY: as above.
        unsafe { inner::usable::<ANYHOW>(block) }
    }
}

/// A free of nothing, or of a block that may not be the allocator's, or by a thread that is not set
/// up.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn free_slowly(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: the caller's: it is a block.
    unsafe {
        if crate::own::contains(block as usize) {
            return own_blocks::free(block);
        }
        let thread = Thread::current();
        if sampled_blocks::contains(block as usize) {
            let size = noted_size(block);
            sampled_blocks::sample(block).record_free(size_class::counted_size(size));
            counts::free(thread.writer(), size);
            return sampled_blocks::give_back(block, size + NOTE);
        }
        let size = inner::usable::<ANYHOW>(block);
        forget_large(block, size);
        counts::free(thread.writer(), size);
        inner::free::<ANYHOW>(block);
    }
}

/// Records the free of a large block, if it was sampled.
pub(super) fn forget_large(block: *mut u8, size: usize) {
    if let Some(sample) = large_sample(block, size) {
        sample.record_free(size);
    }
}

/// An allocation that is sampled, or Plimsoll's own, or by a thread that is not set up.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn place_slowly(make: Make, size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { place_uncharged(Thread::allocating(size), make, size) }
}

/// An allocation that is not yet charged to the thread.
///
/// # Safety
/// As for [`super::malloc`].
pub(super) unsafe fn place_uncharged(thread: Thread, make: Make, size: usize) -> *mut c_void {
    if thread.in_own_scope() {
        let block = own_blocks::place(make, size);
        if !block.is_null() {
            return block.cast();
        }
    }
    // SAFETY: the caller's.
    unsafe {
        let Placed { block, stands_for } = place_charged(thread, make, size);
        if !block.is_null() {
            count_malloc(thread, usable_size(block.cast()), size);
            sampled(stands_for);
        }
        block.cast()
    }
}

/// A block that was made.
struct Placed {
    /// Null if it was not.
    block: *mut u8,
    /// The bytes that it stands for as a sample; 0 if it is none.
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

/// What is left to do when an allocation that stands for so many bytes has been counted.
#[inline(always)]
fn sampled(stands_for: u64) {
    if stands_for != 0 {
        was_sampled(stands_for);
    }
}

/// Apart, because it takes some KiB of stack, and few allocations come here.
#[cold]
#[inline(never)]
fn was_sampled(stands_for: u64) {
    let counting = crate::preload::Counting::begin();
    high_water::allocated(stands_for);
    crate::preload::look_if_alone(&counting);
}

/// Charges an allocation to the thread, takes the sample if that comes of it, and places the block.
/// The ledger is left to the caller.
unsafe fn place_charged(thread: Thread, make: Make, size: usize) -> Placed {
    let Some(weight) = thread.charge(size) else {
        // SAFETY: the caller's.
        return Placed::unsampled(unsafe { make.inside::<ANYHOW>(size) });
    };
    if size <= size_class::LARGEST {
        let got = inner::usable_of(size);
        let counted = size_class::counted_size(got);
        let sample = Sample::take(counted, weight);
        let block = take_slot(got, make.align(), sample);
        if !block.is_null() {
            if matches!(make, Make::Zeroed) {
                // SAFETY: there are that many.
                unsafe { block.write_bytes(0, size) };
            }
            record_small(sample, counted, block);
            return Placed {
                block,
                stands_for: weight.times(counted),
            };
        }
    }
    // SAFETY: the caller's.
    let block = unsafe { make.inside::<ANYHOW>(size) };
    if block.is_null() {
        return Placed::unsampled(block);
    }
    // SAFETY: just made.
    unsafe { note_large(block, weight) }
}

/// Records the sampled allocation of a block that stays with the allocator.
///
/// # Safety
/// The block is the allocator's.
unsafe fn note_large(block: *mut u8, weight: Weight) -> Placed {
    // SAFETY: the caller's.
    let got = unsafe { inner::usable::<ANYHOW>(block) };
    let counted = size_class::counted_size(got);
    let sample = Sample::take(counted, weight).record_malloc(counted);
    if got <= size_class::LARGEST || !SAMPLED_LARGE.note(block as usize, sample) {
        sample.lose_track(counted);
    }
    Placed {
        block,
        stands_for: weight.times(counted),
    }
}

/// A slot for a sampled block of `size` bytes, with its size noted; null if there is none.
fn take_slot(size: usize, align: usize, sample: Sample) -> *mut u8 {
    let block = sampled_blocks::take(size + NOTE, align, sample);
    if !block.is_null() {
        // SAFETY: the last bytes of a slot that has room for them behind the block.
        unsafe { note_of(block).write(size) };
    }
    block
}

/// Where the size of a sampled block stands.
fn note_of(block: *mut u8) -> *mut usize {
    block
        .wrapping_add(sampled_blocks::usable(block) - NOTE)
        .cast()
}

/// The size of a sampled block.
///
/// # Safety
/// It is one.
unsafe fn noted_size(block: *mut u8) -> usize {
    // SAFETY: the caller's; slots are multiples of 16 bytes.
    let size = unsafe { note_of(block).read() };
    // A program that writes beyond the end of its block may have written there.
    size.min(sampled_blocks::usable(block) - NOTE)
}

/// A reallocation that is sampled, or of a sampled or a large block, or to nothing, or by a thread
/// that is not set up.
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn realloc_slowly(block: *mut u8, size: usize) -> *mut c_void {
    let thread = Thread::allocating(size);
    // SAFETY: the caller's: it is a block.
    unsafe {
        if crate::own::contains(block as usize) {
            return own_blocks::realloc(thread, block, size).cast();
        }
        if size == 0 {
            return realloc_to_nothing(block);
        }
        let old_size = usable_size(block.cast());
        let Placed { block, stands_for } = if sampled_blocks::contains(block as usize) {
            move_sampled(thread, block, old_size, size)
        } else {
            realloc_inside(thread, block, old_size, size)
        };
        if !block.is_null() {
            count_realloc(old_size, usable_size(block.cast()), size);
            sampled(stands_for);
        }
        block.cast()
    }
}

/// A reallocation to no bytes at all: for some allocators that is a free, for others not.
unsafe fn realloc_to_nothing(block: *mut u8) -> *mut c_void {
    // SAFETY: the caller's: it is a block.
    unsafe {
        if sampled_blocks::contains(block as usize) {
            let nothing = inner::realloc::<ANYHOW>(inner::malloc::<ANYHOW>(0), 0);
            free_slowly(block);
            if !nothing.is_null() {
                count_malloc(Thread::current(), inner::usable::<ANYHOW>(nothing), 0);
            }
            return nothing.cast();
        }
        let old_size = inner::usable::<ANYHOW>(block);
        forget_large(block, old_size);
        let moved = inner::realloc::<ANYHOW>(block, 0);
        let writer = Thread::current().writer();
        if moved.is_null() {
            counts::free(writer, old_size);
        } else {
            counts::realloc(writer, old_size, inner::usable::<ANYHOW>(moved));
        }
        moved.cast()
    }
}

/// Reallocates a sampled block: it always moves.
unsafe fn move_sampled(thread: Thread, block: *mut u8, old_size: usize, size: usize) -> Placed {
    // SAFETY: the caller's; both blocks are at least as long as what is copied, and distinct.
    unsafe {
        let moved = place_charged(thread, Make::Plain, size);
        if !moved.block.is_null() {
            moved
                .block
                .copy_from_nonoverlapping(block, old_size.min(size));
            sampled_blocks::sample(block).record_replaced(size_class::counted_size(old_size));
            sampled_blocks::give_back(block, old_size + NOTE);
        }
        moved
    }
}

/// Reallocates a block of the allocator's. If the new one is sampled and small, it moves out.
unsafe fn realloc_inside(thread: Thread, block: *mut u8, old_size: usize, size: usize) -> Placed {
    let old_counted = size_class::counted_size(old_size);
    let weight = thread.charge(size);
    // The address may be another thread's as soon as the block has moved.
    let old_sample = large_sample(block, old_size);
    if let Some(weight) = weight.filter(|_| size <= size_class::LARGEST) {
        let got = inner::usable_of(size);
        let counted = size_class::counted_size(got);
        let sample = Sample::take(counted, weight);
        let moved = take_slot(got, ALIGN, sample);
        if !moved.is_null() {
            record_small(sample, counted, moved);
            if let Some(old_sample) = old_sample {
                old_sample.record_replaced(old_counted);
            }
            // SAFETY: both blocks are at least as long as what is copied; the old one is the
            // caller's.
            unsafe {
                moved.copy_from_nonoverlapping(block, old_size.min(size));
                inner::free::<ANYHOW>(block);
            }
            return Placed {
                block: moved,
                stands_for: weight.times(counted),
            };
        }
    }
    // SAFETY: the caller's.
    let moved = unsafe { inner::realloc::<ANYHOW>(block, size) };
    if moved.is_null() {
        if let Some(old_sample) =
            old_sample.filter(|&sample| !SAMPLED_LARGE.note(block as usize, sample))
        {
            old_sample.lose_track(old_counted);
        }
        return Placed::unsampled(moved);
    }
    if let Some(old_sample) = old_sample {
        old_sample.record_replaced(old_counted);
    }
    match weight {
        // SAFETY: just made.
        Some(weight) => unsafe { note_large(moved, weight) },
        None => Placed::unsampled(moved),
    }
}
