//! Reallocations that leave the fast path of [`Alloc`].

use std::alloc::{GlobalAlloc, Layout};

use super::samples::{give_back, record_inside, record_small, record_small_replaced, take_large};
use super::thread::Thread;
use super::{Alloc, counts, measured, process, sampled_blocks};
use crate::internal_scope;
use crate::sampler::Sample;
use plimsoll_ledger::size_class;

impl<A: GlobalAlloc, const COUNTED: bool> Alloc<A, COUNTED> {
    /// Counts a free and an allocation in one cut, on a path that may lack an area.
    #[inline]
    fn count_realloc(&self, thread: Thread, old_size: usize, new_size: usize) {
        measured::reallocated(new_size, old_size);
        if COUNTED {
            counts::realloc(thread.writer(), old_size, new_size);
        }
    }

    /// Reallocates a block of Plimsoll. If the internal heap is full, the block becomes one of the
    /// program's.
    ///
    /// # Safety
    /// The internal heap made the block, with the layout `old`; both layouts have the same
    /// alignment.
    unsafe fn realloc_own(
        &self,
        thread: Thread,
        block: *mut u8,
        old: Layout,
        new: Layout,
    ) -> *mut u8 {
        // SAFETY: the internal heap made the block, with the layout `old`, by this function's
        // contract.
        let grown = unsafe { crate::internal_heap::realloc(block, old, new.size()) };
        if !grown.is_null() {
            return grown;
        }
        // SAFETY: the blocks do not overlap, and each is at least as long as the copied part; the
        // internal heap made the old one with the layout `old`.
        unsafe {
            let moved = self.place_uncharged(thread, new, false);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
                crate::internal_heap::free(block, old);
            }
            moved
        }
    }

    /// Makes a reallocation from or to a size above [`size_class::LARGEST_STEP`], or with a large
    /// alignment.
    ///
    /// # Safety
    /// As for `GlobalAlloc::realloc`.
    #[inline(never)]
    pub(super) unsafe fn realloc_larger(
        block: *mut u8,
        layout: Layout,
        new_size: usize,
        alloc: &Self,
    ) -> *mut u8 {
        // SAFETY: countdown and route are the thread's own storage, which lasts as long as the
        // thread; `block` came from this allocator with `layout`, as `GlobalAlloc` requires. The
        // area is not null if neither countdown nor limit diverts the call.
        unsafe {
            let countdown = &*internal_scope::countdown();
            let left = countdown.get().wrapping_sub(new_size as i64);
            countdown.set(left);
            let both_have_a_class = layout.size().max(new_size) <= size_class::LARGEST;
            if left < 0
                || (block as usize) < (*internal_scope::route()).limit.get()
                || !both_have_a_class
            {
                return Self::realloc_cold(block, layout, new_size, alloc);
            }
            let moved = alloc.inner.realloc(block, layout, new_size);
            if COUNTED && !moved.is_null() {
                counts::realloc_larger(
                    (*internal_scope::route()).area.get(),
                    layout.size(),
                    new_size,
                );
            }
            moved
        }
    }

    /// Makes a reallocation that is sampled, or of a sampled or large block, or Plimsoll's own, or
    /// by a thread that is measured or not set up.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn realloc_cold(
        block: *mut u8,
        layout: Layout,
        new_size: usize,
        alloc: &Self,
    ) -> *mut u8 {
        if COUNTED && measured::is_active() {
            let has_classes = layout.size().max(new_size) <= size_class::LARGEST;
            let area = match has_classes && process::is_beside_own_range(block) {
                true => internal_scope::charge_measured(new_size),
                false => std::ptr::null_mut(),
            };
            if !area.is_null() {
                // SAFETY: the area is the thread's own; `block` is live and has this layout, as
                // `GlobalAlloc::realloc` requires; its address shows that the inner allocator made it.
                return unsafe {
                    let moved = alloc.inner.realloc(block, layout, new_size);
                    if !moved.is_null() {
                        measured::reallocated(new_size, layout.size());
                        counts::realloc_larger(area, layout.size(), new_size);
                    }
                    moved
                };
            }
        }
        let thread = alloc.noticed(Thread::allocating(new_size));
        // SAFETY: `new_size`, rounded up to the alignment, does not overflow, as
        // `GlobalAlloc::realloc` requires.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if crate::internal_heap::contains(block as usize) {
            // SAFETY: `block` is live and has this layout, as `GlobalAlloc::realloc` requires; its
            // address shows that the internal heap made it.
            return unsafe { alloc.realloc_own(thread, block, layout, new_layout) };
        }
        // SAFETY: `block` is live and has this layout, as `GlobalAlloc::realloc` requires.
        unsafe {
            if sampled_blocks::contains(block as usize) {
                alloc.move_sampled(thread, block, layout, new_layout)
            } else {
                alloc.realloc_inside(thread, block, layout, new_layout)
            }
        }
    }

    /// Reallocates a sampled block: it always moves.
    unsafe fn move_sampled(
        &self,
        thread: Thread,
        block: *mut u8,
        old: Layout,
        new: Layout,
    ) -> *mut u8 {
        // SAFETY: the sampled block is live and has the layout `old`, by this function's contract;
        // both blocks are at least as long as the copied part, and distinct.
        unsafe {
            let moved = self.place_charged(thread, new, false);
            if moved.is_null() {
                return moved;
            }
            moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
            record_small_replaced(block, size_class::counted_size(old.size()));
            self.count_realloc(thread, old.size(), new.size());
            sampled_blocks::give_back(block, old.size());
            moved
        }
    }

    /// Reallocates a block of the inner allocator. A sampled small block moves to a slot.
    unsafe fn realloc_inside(
        &self,
        thread: Thread,
        block: *mut u8,
        old: Layout,
        new: Layout,
    ) -> *mut u8 {
        let [old_counted, new_counted] =
            [old, new].map(|layout| size_class::counted_size(layout.size()));
        let weight = thread.charge(new.size());
        let sample = weight.map(|weight| Sample::take(new_counted, weight));
        let old_sample = take_large(block, old.size());
        if let Some(sample) = sample.filter(|_| new.size() <= size_class::LARGEST) {
            let moved = sampled_blocks::take(new.size(), new.align(), sample);
            if !moved.is_null() {
                record_small(thread, sample, new_counted, moved);
                if let Some(old_sample) = old_sample {
                    old_sample.record_replaced(old_counted);
                }
                self.count_realloc(thread, old.size(), new.size());
                // SAFETY: both blocks are at least as long as the copied part; the inner allocator
                // made `block`, with the layout `old`, by this function's contract.
                unsafe {
                    moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
                    self.inner.dealloc(block, old);
                }
                return moved;
            }
        }
        // SAFETY: the inner allocator made the block, with the layout `old`, by this function's
        // contract.
        let moved = unsafe { self.inner.realloc(block, old, new.size()) };
        if moved.is_null() {
            if let Some(old_sample) = old_sample {
                give_back(old_sample, old_counted, block);
            }
            return moved;
        }
        if let Some(old_sample) = old_sample {
            old_sample.record_replaced(old_counted);
        }
        if let Some(sample) = sample {
            record_inside(thread, sample, new_counted, moved, new.size());
        }
        self.count_realloc(thread, old.size(), new.size());
        moved
    }
}
