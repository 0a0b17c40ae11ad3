//! The operations of [`Alloc`]: the fast path of each, inlined into the program, and its cold path.

use std::alloc::{GlobalAlloc, Layout};

use super::samples::{forget_large, record_inside, record_small, record_small_free};
use super::thread::Thread;
use super::{Alloc, counts, measured, process, sampled_blocks};
use crate::internal_scope;
use crate::sampler::Sample;
use plimsoll_backend::backend::is_aligned_anyway;
use plimsoll_ledger::size_class;

// SAFETY: blocks come from the inner allocator, or from `sampled_blocks` or `internal_heap`, which
// meet the same contract; a block's address identifies its source.
unsafe impl<A: GlobalAlloc, const COUNTED: bool> GlobalAlloc for Alloc<A, COUNTED> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` has a size above zero, as `GlobalAlloc::alloc` requires.
        unsafe { self.place(layout, false) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` has a size above zero, as `GlobalAlloc::alloc_zeroed` requires.
        unsafe { self.place(layout, true) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the route is the thread's own storage, which lasts as long as the thread; its
        // area is not null if a block is above its limit. `block` came from this allocator with
        // `layout`, as `GlobalAlloc` requires, and addresses above the limit are the inner
        // allocator's. Every uncommon case ends in a tail call, so that the fast path saves no
        // registers.
        unsafe {
            let route = &*internal_scope::route();
            if (block as usize) < route.limit.get() {
                return Self::dealloc_cold(block, layout, self);
            }
            let largest = if COUNTED {
                size_class::LARGEST_STEP
            } else {
                size_class::LARGEST
            };
            if layout.size() > largest {
                return Self::dealloc_larger(block, layout, self);
            }
            if COUNTED {
                counts::free_small(route.area.get(), layout.size());
            }
            self.inner.dealloc(block, layout);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `GlobalAlloc` has callers round `new_size` up to the alignment without overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: countdown and route are the thread's own storage, which lasts as long as the
        // thread; `block` came from this allocator with `layout`, as `GlobalAlloc` requires. The
        // area is not null if neither countdown nor limit diverts the call.
        unsafe {
            let is_common = if COUNTED {
                layout.size() <= size_class::LARGEST_STEP && is_common(new_layout)
            } else {
                layout.size().max(new_size) <= size_class::LARGEST
            };
            if !is_common {
                return Self::realloc_larger(block, layout, new_size, self);
            }
            let countdown = &*internal_scope::countdown();
            let left = countdown.get().wrapping_sub(new_size as i64);
            countdown.set(left);
            if left < 0 || (block as usize) < (*internal_scope::route()).limit.get() {
                return Self::realloc_cold(block, layout, new_size, self);
            }
            let moved = self.inner.realloc(block, layout, new_size);
            if COUNTED && !moved.is_null() {
                let area = (*internal_scope::route()).area.get();
                counts::realloc_small(area, layout.size(), new_size);
            }
            moved
        }
    }
}

/// Returns whether an allocation takes the fast path: its size counts in one of the steps up to
/// [`size_class::LARGEST_STEP`], and an allocator aligns every block of that size sufficiently.
///
/// The inner allocator compares alignments again, and the compiler removes that. Without the
/// barriers between them, three branches that are hardly ever taken would become twice the
/// instructions.
#[inline(always)]
fn is_common(layout: Layout) -> bool {
    plimsoll_sys::arch::keep_branches_apart();
    layout.size() <= size_class::LARGEST_STEP && is_aligned_anyway(layout.align(), layout.size())
}

/// The allocator is the last parameter of the functions that the fast path calls out of line: its other
/// arguments are in their registers already.
impl<A: GlobalAlloc, const COUNTED: bool> Alloc<A, COUNTED> {
    /// # Safety
    /// As for `GlobalAlloc::alloc`.
    #[inline(always)]
    unsafe fn place(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: countdown and route are the thread's own storage; `layout` is valid, by this
        // function's contract. The area is not null if the countdown is not negative.
        unsafe {
            if COUNTED && !is_common(layout) {
                return Self::place_larger(layout, zeroed, self);
            }
            let countdown = &*internal_scope::countdown();
            let left = countdown.get().wrapping_sub(layout.size() as i64);
            countdown.set(left);
            if left < 0 {
                return Self::alloc_cold(layout, zeroed, self);
            }
            let block = self.place_inside(layout, zeroed);
            if COUNTED && !block.is_null() {
                counts::malloc_small((*internal_scope::route()).area.get(), layout.size());
            }
            block
        }
    }

    /// Makes an allocation that is not [common](is_common), otherwise like [`Alloc::place`].
    ///
    /// # Safety
    /// As for `GlobalAlloc::alloc`.
    #[inline(never)]
    unsafe fn place_larger(layout: Layout, zeroed: bool, alloc: &Self) -> *mut u8 {
        // SAFETY: countdown and route are the thread's own storage; `layout` is valid, by this
        // function's contract. The area is not null if the countdown is not negative.
        unsafe {
            let countdown = &*internal_scope::countdown();
            let left = countdown.get().wrapping_sub(layout.size() as i64);
            countdown.set(left);
            if left < 0 {
                return Self::alloc_cold(layout, zeroed, alloc);
            }
            let block = alloc.place_inside(layout, zeroed);
            if block.is_null() {
                return block;
            }
            match size_class::of(layout.size()) {
                Some(class) => counts::malloc_in((*internal_scope::route()).area.get(), class),
                None => counts::malloc_large((*internal_scope::route()).area.get(), layout.size()),
            }
            block
        }
    }

    #[inline(always)]
    unsafe fn place_inside(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: `layout` has a size above zero, by this function's contract.
        unsafe {
            if zeroed {
                self.inner.alloc_zeroed(layout)
            } else {
                self.inner.alloc(layout)
            }
        }
    }

    /// Registers the backend for the calling thread, whose first operation always takes a cold
    /// path.
    pub(super) fn noticed(&self, thread: Thread) -> Thread {
        if let Some(backend) = self.backend {
            thread.notice(backend);
        }
        thread
    }

    /// Makes an allocation that is sampled, or Plimsoll's own, or by a thread that is measured or not
    /// set up.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_cold(layout: Layout, zeroed: bool, alloc: &Self) -> *mut u8 {
        if COUNTED && measured::is_active() {
            let area = internal_scope::charge_measured(layout.size());
            if !area.is_null() {
                // SAFETY: `layout` comes unchanged from `GlobalAlloc`; the area is the thread's own.
                return unsafe {
                    let block = alloc.place_inside(layout, zeroed);
                    if !block.is_null() {
                        measured::allocated(layout.size());
                        match size_class::of(layout.size()) {
                            Some(class) => counts::malloc_in(area, class),
                            None => counts::malloc_large(area, layout.size()),
                        }
                    }
                    block
                };
            }
        }
        let thread = alloc.noticed(Thread::allocating(layout.size()));
        // SAFETY: `layout` comes unchanged from `GlobalAlloc`.
        unsafe { alloc.place_uncharged(thread, layout, zeroed) }
    }

    /// Makes an allocation that is not yet charged to the thread. Inlined, so that the stack of a sample
    /// has no frame for it.
    #[inline(always)]
    pub(super) unsafe fn place_uncharged(
        &self,
        thread: Thread,
        layout: Layout,
        zeroed: bool,
    ) -> *mut u8 {
        if thread.in_own_scope() {
            if thread.is_uncounted() {
                // SAFETY: `layout` has a size above zero, by this function's contract.
                return unsafe { self.place_inside(layout, zeroed) };
            }
            let block = crate::internal_heap::alloc(layout, zeroed);
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: `layout` has a size above zero, by this function's contract.
        let block = unsafe { self.place_charged(thread, layout, zeroed) };
        if !block.is_null() {
            measured::allocated(layout.size());
            if COUNTED {
                counts::malloc(thread.writer(), layout.size());
            }
        }
        block
    }

    /// Charges an allocation to the thread, takes a sample if the charge requires one, and places
    /// the block. The caller updates the ledger.
    pub(super) unsafe fn place_charged(
        &self,
        thread: Thread,
        layout: Layout,
        zeroed: bool,
    ) -> *mut u8 {
        let size = layout.size();
        let Some(weight) = thread.charge(size) else {
            // SAFETY: `layout` has a size above zero, by this function's contract.
            return unsafe { self.place_inside(layout, zeroed) };
        };
        let counted = size_class::counted_size(size);
        let sample = Sample::take(counted, weight);
        if size <= size_class::LARGEST {
            let block = sampled_blocks::take(size, layout.align(), sample);
            if !block.is_null() {
                if zeroed {
                    // SAFETY: the slot holds at least `size` bytes.
                    unsafe { block.write_bytes(0, size) };
                }
                record_small(thread, sample, counted, block);
                return block;
            }
        }
        // SAFETY: `layout` has a size above zero, by this function's contract.
        let block = unsafe { self.place_inside(layout, zeroed) };
        if !block.is_null() {
            record_inside(thread, sample, counted, block, size);
        }
        block
    }

    /// Frees a block of the inner allocator above [`size_class::LARGEST_STEP`].
    ///
    /// # Safety
    /// As for `GlobalAlloc::dealloc`; the thread's area is not null.
    #[inline(never)]
    unsafe fn dealloc_larger(block: *mut u8, layout: Layout, alloc: &Self) {
        // SAFETY: the area and the block meet the callees' contracts, by this function's contract;
        // `block` came from the inner allocator.
        unsafe {
            let area = (*internal_scope::route()).area.get();
            match size_class::of(layout.size()) {
                Some(class) if COUNTED => counts::free_in(area, class),
                Some(_) => {}
                None => {
                    // Another thread may receive the address as soon as the block is free.
                    forget_large(block, layout.size());
                    if COUNTED {
                        counts::free_large(area, layout.size());
                    }
                }
            }
            alloc.inner.dealloc(block, layout);
        }
    }

    /// Frees a block that may not be the inner allocator's, or on a thread that is measured or not set
    /// up.
    #[cold]
    #[inline(never)]
    unsafe fn dealloc_cold(block: *mut u8, layout: Layout, alloc: &Self) {
        // SAFETY: the route is the thread's own storage.
        let area = unsafe { (*internal_scope::route()).area.get() };
        let is_small = COUNTED && layout.size() <= size_class::LARGEST_STEP;
        if is_small && process::is_below_own_range(block) && !area.is_null() {
            // The program lies at a fixed address, and its heap behind it.
            // SAFETY: the area is the thread's own; `block` is live and has this layout, as
            // `GlobalAlloc::dealloc` requires; its address shows that the inner allocator made it.
            return unsafe {
                counts::free_small(area, layout.size());
                alloc.inner.dealloc(block, layout);
            };
        }
        if COUNTED && measured::is_active() && process::is_beside_own_range(block) {
            let area = internal_scope::measured_area();
            if let Some(class) = size_class::of(layout.size()).filter(|_| !area.is_null()) {
                measured::freed(layout.size());
                // SAFETY: the area is the thread's own; `block` is live and has this layout, as
                // `GlobalAlloc::dealloc` requires; its address shows that the inner allocator made it.
                return unsafe {
                    counts::free_in(area, class);
                    alloc.inner.dealloc(block, layout);
                };
            }
        }
        if crate::internal_heap::contains(block as usize) {
            // SAFETY: `block` is live and has this layout, as `GlobalAlloc::dealloc` requires; its
            // address shows that the internal heap made it.
            return unsafe { crate::internal_heap::free(block, layout) };
        }
        let thread = alloc.noticed(Thread::current());
        let size = layout.size();
        if sampled_blocks::contains(block as usize) {
            record_small_free(thread, block, size_class::counted_size(size));
            alloc.count_free(thread, size);
            return sampled_blocks::give_back(block, size);
        }
        forget_large(block, size);
        alloc.count_free(thread, size);
        // SAFETY: `block` is live and has this layout, as `GlobalAlloc::dealloc` requires; its
        // address shows that the inner allocator made it.
        unsafe { alloc.inner.dealloc(block, layout) }
    }

    /// Counts a free on a path that may lack an area.
    fn count_free(&self, thread: Thread, size: usize) {
        measured::freed(size);
        if COUNTED {
            counts::free(thread.writer(), size);
        }
    }
}
