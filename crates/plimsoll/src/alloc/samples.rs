//! The course of a sampled block: its record at the allocation, and at the free.

use super::sampled_blocks;
use super::sampled_large::SAMPLED_LARGE;
use super::thread::Thread;
use crate::sampler::Sample;
use crate::size_class;

/// Records the allocation of a sampled block that has a slot.
pub(super) fn record_small(thread: Thread, sample: Sample, counted: usize, block: *mut u8) {
    let sample = sample.record_malloc(counted);
    sampled_blocks::note_recorded(block, sample);
    thread.note_sample(block, sample);
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
    sample.record_malloc(counted).untrack(counted);
}

/// Records the sampled allocation of a block whose every free searches for a sample.
pub(super) fn record_anywhere(thread: Thread, sample: Sample, counted: usize, block: *mut u8) {
    let sample = sample.record_malloc(counted);
    if SAMPLED_LARGE.note(block as usize, sample) {
        thread.note_sample(block, sample);
    } else {
        sample.untrack(counted);
    }
}

/// Records the free of a sampled block of `size` bytes that has a slot.
pub(super) fn record_small_free(thread: Thread, block: *mut u8, size: usize) {
    let sample = sampled_blocks::sample(block);
    let is_temporary = thread.is_temporary(block, sample);
    sample.record_free(size_class::counted_size(size), is_temporary);
}

/// Removes and returns the sample of a large block of the inner allocator, if it was sampled.
#[inline]
pub(super) fn large_sample(block: *mut u8, size: usize) -> Option<Sample> {
    if size > size_class::LARGEST {
        SAMPLED_LARGE.take(block as usize)
    } else {
        None
    }
}

/// Records the free of a large block, if it was sampled. Call it on a thread that is set up.
#[inline]
pub(super) fn forget_large(block: *mut u8, size: usize) {
    if let Some(sample) = large_sample(block, size) {
        record_large_free(block, sample, size);
    }
}

/// Records the free of a sampled block without a slot. Call it on a thread that is set up.
#[cold]
#[inline(never)]
pub(super) fn record_large_free(block: *mut u8, sample: Sample, size: usize) {
    let is_temporary = Thread::here().is_temporary(block, sample);
    sample.record_free(size, is_temporary);
}
