//! The course of a sampled block: its record at the allocation, and at the free.
//!
//! A tracer outside the process follows the same course by the [probes](usdt): `alloc` with the bytes
//! that the heap profile adds, `free` where the block leaves the memory in use. Each `alloc` is
//! followed by one `free` at most. A probe `free` precedes the call that may release the address.

use super::sampled_blocks;
use super::sampled_inside::{Noted, SAMPLED_INSIDE};
use super::thread::Thread;
use super::usdt;
use crate::sampler::Sample;
use plimsoll_ledger::size_class;

/// Records the allocation of a sampled block that has a slot.
pub(super) fn record_small(thread: Thread, sample: Sample, counted: usize, block: *mut u8) {
    let sample = record(sample, counted, block);
    sampled_blocks::note_recorded(block, sample);
    thread.note_sample(block, sample);
}

/// Records a sampled allocation. Returns the sample to store.
fn record(sample: Sample, counted: usize, block: *mut u8) -> Sample {
    usdt::alloc(block, counted, sample.weight.times(counted));
    sample.record_malloc(counted)
}

/// Records that the free of a sampled block will not be noticed.
fn untrack(sample: Sample, counted: usize, block: *mut u8) {
    usdt::free(block);
    sample.untrack(counted);
}

/// Records the sampled allocation of a block of `size` bytes that stays in the underlying allocator.
pub(super) fn record_inside(
    thread: Thread,
    sample: Sample,
    counted: usize,
    block: *mut u8,
    size: usize,
) {
    if size > size_class::LARGEST {
        return record_anywhere(thread, sample, counted, block);
    }
    untrack(record(sample, counted, block), counted, block);
}

/// Records the sampled allocation of a block whose every free searches for a sample.
pub fn record_anywhere(thread: Thread, sample: Sample, counted: usize, block: *mut u8) {
    // The program has released a block at this address in a way that is not seen.
    if let Some(earlier) = SAMPLED_INSIDE.take(block as usize) {
        record_inside_free(block, earlier, counted);
    }
    let sample = record(sample, counted, block);
    if SAMPLED_INSIDE.note(block as usize, counted, sample) {
        thread.note_sample(block, sample);
    } else {
        untrack(sample, counted, block);
    }
}

/// Records the free of a sampled block that has a slot.
pub(super) fn record_small_free(thread: Thread, block: *mut u8, counted: usize) {
    let sample = sampled_blocks::sample(block);
    let is_temporary = thread.is_temporary(block, sample);
    usdt::free(block);
    sample.record_free(counted, is_temporary);
}

/// Records that another block replaces a sampled one that has a slot.
pub(super) fn record_small_replaced(block: *mut u8, counted: usize) {
    usdt::free(block);
    sampled_blocks::sample(block).record_replaced(counted);
}

/// Removes and returns the sample of a large block of the inner allocator that is about to be
/// reallocated, if it was sampled. Another thread may receive the address as soon as the block has
/// moved.
pub(super) fn take_large(block: *mut u8, size: usize) -> Option<Noted> {
    if size > size_class::LARGEST {
        take_anywhere(block)
    } else {
        None
    }
}

/// Removes and returns the sample of a block that is about to be reallocated, whose every free
/// searches for a sample.
pub fn take_anywhere(block: *mut u8) -> Option<Noted> {
    let noted = SAMPLED_INSIDE.take(block as usize)?;
    usdt::free(block);
    Some(noted)
}

/// Returns a sample to a block whose reallocation failed. Tracers have read its free, so they read its
/// allocation again.
pub fn give_back(noted: Noted, counted: usize, block: *mut u8) {
    let (sample, counted) = (noted.sample, noted.size(counted));
    if SAMPLED_INSIDE.note(block as usize, counted, sample) {
        usdt::alloc(block, counted, sample.weight.times(counted));
    } else {
        sample.untrack(counted);
    }
}

/// Records the free of a large block, if it was sampled. Call it on a thread that is set up.
#[inline]
pub(super) fn forget_large(block: *mut u8, size: usize) {
    if size > size_class::LARGEST {
        forget_anywhere(block, size);
    }
}

/// Records the free of a block that counts at a size, if it was sampled. Call it on a thread that is set up.
#[inline]
pub fn forget_anywhere(block: *mut u8, counted: usize) {
    if let Some(noted) = SAMPLED_INSIDE.take(block as usize) {
        record_inside_free(block, noted, counted);
    }
}

/// Records the free of a sampled block without a slot. Call it on a thread that is set up.
#[cold]
#[inline(never)]
fn record_inside_free(block: *mut u8, noted: Noted, counted: usize) {
    let is_temporary = Thread::here().is_temporary(block, noted.sample);
    usdt::free(block);
    noted.record_free(counted, is_temporary);
}
