//! The allocator door: [`Alloc`], which counts and samples on the way to the program's own
//! allocator.

#[cfg(feature = "preload")]
pub(crate) mod c;
pub(crate) mod counts;
pub(crate) mod process;
pub(crate) mod sampled_blocks;
mod sampled_large;
pub mod size_class;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;

use crate::primitives::{AtomicBool, Ordering};
use crate::sampler::Sample;
use crate::stats::{Backend, backend};
use sampled_large::SAMPLED_LARGE;
use thread::Thread;

/// An allocator that counts what passes through it, exactly, and samples it for the heap profile.
///
/// It goes over any allocator and changes nothing of how that works:
///
/// ```
/// #[global_allocator]
/// static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// # fn main() { drop(vec![1]); }
/// ```
///
/// With the features `jemalloc` and `mimalloc`, `plimsoll::Alloc<plimsoll::Jemalloc> =
/// plimsoll::Alloc::jemalloc()` and `plimsoll::Alloc<plimsoll::MiMalloc> =
/// plimsoll::Alloc::mimalloc()`; over any other allocator of a type `A`,
/// `plimsoll::Alloc<A> = plimsoll::Alloc::new(..)`.
///
/// What memory the allocator holds around its blocks is asked of a
/// [`Backend`], if the `Alloc` was made with one.
///
/// Counting adds some 18 to 31 instructions to an allocation and its free in a program that is
/// optimized at link time, and 32 to 41 in one that is not. None of them is locked or a fence, and
/// none writes to memory that another thread writes to. All `Alloc`s of a
/// process count together.
///
/// One block in [`DEFAULT_HEAP_RATE`](crate::profile::DEFAULT_HEAP_RATE) bytes or so is sampled. A
/// sampled block of up to 32 KiB comes from memory of Plimsoll's own instead of the inner
/// allocator, so asking the inner allocator about it (`malloc_usable_size` and the like) is an
/// error; freeing it through this allocator is all that `GlobalAlloc` allows anyway.
///
/// A null pointer from the inner allocator is passed on and not counted; a `realloc` that fails
/// changes nothing.
///
/// `COUNTED` is whether operations are counted: see [`SamplingAlloc`] for what is left without.
#[derive(Clone, Copy, Default)]
pub struct Alloc<A = System, const COUNTED: bool = true> {
    inner: A,
    backend: Option<&'static dyn Backend>,
}

/// An [`Alloc`] that samples for the heap profile and counts nothing.
///
/// ```
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOC: plimsoll::SamplingAlloc = plimsoll::SamplingAlloc::samples_only(System);
/// # fn main() {
/// #     plimsoll::profile::set_heap_rate(1);
/// #     let block = std::hint::black_box(vec![0u8; 100]);
/// #     assert_eq!(plimsoll::heap_stats().mallocs, 0);
/// #     drop(block);
/// # }
/// ```
///
/// The heap profile and all that is made from it are as good as with an [`Alloc`], but for its
/// comments, which compare the estimates with exact counts. [`heap_stats()`](crate::heap_stats) and
/// what is derived from it (the block counts of [`mem_stats()`](crate::mem_stats), metrics under
/// `/gc/heap/`) miss every operation of this allocator: without an `Alloc` beside it they are 0.
///
/// An allocation and its free take some 10 instructions more than without Plimsoll.
pub type SamplingAlloc<A = System> = Alloc<A, false>;

impl<A> Alloc<A, false> {
    /// Returns a [`SamplingAlloc`] over `inner`.
    pub const fn samples_only(inner: A) -> Self {
        Self {
            inner,
            backend: None,
        }
    }
}

impl Alloc<System> {
    /// Over the system's allocator, with the backend [`System`](backend::System::PLAIN).
    pub const fn system() -> Self {
        Self::with_backend(System, &backend::System::PLAIN)
    }
}

impl<A> Alloc<A> {
    /// Over `inner`, whose pages are not asked for.
    pub const fn new(inner: A) -> Self {
        Self {
            inner,
            backend: None,
        }
    }

    /// Over `inner`, whose pages are asked of `backend`. If there are several `Alloc`s with
    /// backends of different names, the one that is first allocated through has its way: see
    /// [`stats::backend()`](crate::stats::backend()).
    pub const fn with_backend(inner: A, backend: &'static dyn Backend) -> Self {
        Self {
            inner,
            backend: Some(backend),
        }
    }
}

impl<A, const COUNTED: bool> Alloc<A, COUNTED> {
    /// The allocator underneath.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

impl<A: fmt::Debug, const COUNTED: bool> fmt::Debug for Alloc<A, COUNTED> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Alloc")
            .field("inner", &self.inner)
            .field("backend", &self.backend.map(Backend::name))
            .finish()
    }
}

// SAFETY: blocks come from the inner allocator, or from `sampled_blocks` or `own`, which keep to
// the same contract; which of them a block came from is told by its address.
unsafe impl<A: GlobalAlloc, const COUNTED: bool> GlobalAlloc for Alloc<A, COUNTED> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { self.place(layout, false) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { self.place(layout, true) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the route is the thread's own storage, which lasts as long as the thread; its area
        // is not null when its limit lets a block pass. `block` came from this allocator with
        // `layout`, which is `GlobalAlloc`'s condition, and addresses above the limit are the inner
        // allocator's. Every uncommon case ends in a tail call, so that the common path saves no
        // registers.
        unsafe {
            let route = &*thread::route();
            if (block as usize) < route.limit.get() {
                return self.dealloc_slowly(block, layout);
            }
            let largest = if COUNTED {
                size_class::LARGEST_STEP
            } else {
                size_class::LARGEST
            };
            if layout.size() > largest {
                return self.dealloc_larger(block, layout);
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
        // SAFETY: as for `dealloc`; the area is not null when countdown and limit let a block pass.
        unsafe {
            let is_common = if COUNTED {
                layout.size() <= size_class::LARGEST_STEP && is_common(new_layout)
            } else {
                layout.size().max(new_size) <= size_class::LARGEST
            };
            if !is_common {
                return self.realloc_larger(block, layout, new_size);
            }
            let countdown = &*thread::countdown();
            let left = countdown.get().wrapping_sub(new_size as i64);
            countdown.set(left);
            if left < 0 || (block as usize) < (*thread::route()).limit.get() {
                return self.realloc_slowly(block, layout, new_size);
            }
            let moved = self.inner.realloc(block, layout, new_size);
            if COUNTED && !moved.is_null() {
                let area = (*thread::route()).area.get();
                counts::realloc_small(area, layout.size(), new_size);
            }
            moved
        }
    }
}

/// Whether an allocation takes the common path: its size counts in one of the steps up to
/// [`size_class::LARGEST_STEP`], and an allocator aligns every block of that size as it asks.
///
/// The inner allocator compares alignments again, and the compiler drops that. Without the barriers
/// between them, three branches that are hardly ever taken would become twice the instructions.
#[inline(always)]
fn is_common(layout: Layout) -> bool {
    crate::primitives::keep_branches_apart();
    layout.size() <= size_class::LARGEST_STEP && is_aligned_anyway(layout.align(), layout.size())
}

/// Whether an allocator aligns every block of that size to at least `align`.
#[inline(always)]
pub(crate) fn is_aligned_anyway(align: usize, size: usize) -> bool {
    /// The alignment of every block that is at least as large.
    const MALLOC_ALIGNMENT: usize = 16;
    crate::primitives::keep_branches_apart();
    if align > MALLOC_ALIGNMENT {
        return false;
    }
    crate::primitives::keep_branches_apart();
    align <= size
}

impl<A: GlobalAlloc, const COUNTED: bool> Alloc<A, COUNTED> {
    /// # Safety
    /// As for `GlobalAlloc::alloc`.
    #[inline(always)]
    unsafe fn place(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: the thread's own storage; `layout` is the caller's. The area is not null when the
        // countdown lets an allocation pass.
        unsafe {
            if COUNTED && !is_common(layout) {
                return self.place_larger(layout, zeroed);
            }
            let countdown = &*thread::countdown();
            let left = countdown.get().wrapping_sub(layout.size() as i64);
            countdown.set(left);
            if left < 0 {
                return self.place_slowly(layout, zeroed);
            }
            let block = self.place_inside(layout, zeroed);
            if COUNTED && !block.is_null() {
                counts::malloc_small((*thread::route()).area.get(), layout.size());
            }
            block
        }
    }

    /// An allocation that is not [common](is_common), and otherwise as by [`Alloc::place`].
    ///
    /// # Safety
    /// As for `GlobalAlloc::alloc`.
    #[inline(never)]
    unsafe fn place_larger(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: as in `place`.
        unsafe {
            let countdown = &*thread::countdown();
            let left = countdown.get().wrapping_sub(layout.size() as i64);
            countdown.set(left);
            if left < 0 {
                return self.place_slowly(layout, zeroed);
            }
            let block = self.place_inside(layout, zeroed);
            if block.is_null() {
                return block;
            }
            match size_class::of(layout.size()) {
                Some(class) => counts::malloc_in((*thread::route()).area.get(), class),
                None => counts::malloc_large((*thread::route()).area.get(), layout.size()),
            }
            block
        }
    }

    #[inline(always)]
    unsafe fn place_inside(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe {
            if zeroed {
                self.inner.alloc_zeroed(layout)
            } else {
                self.inner.alloc(layout)
            }
        }
    }

    /// Notices the backend for the calling thread, which takes the slow path before any other.
    fn noticed(&self, thread: Thread) -> Thread {
        if let Some(backend) = self.backend {
            thread.notice(backend);
        }
        thread
    }

    /// An allocation that is sampled, or Plimsoll's own, or by a thread that is not set up.
    #[cold]
    #[inline(never)]
    unsafe fn place_slowly(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        let thread = self.noticed(Thread::allocating(layout.size()));
        // SAFETY: `layout` comes unchanged from `GlobalAlloc`.
        unsafe { self.place_uncharged(thread, layout, zeroed) }
    }

    /// An allocation that is not yet charged to the thread.
    unsafe fn place_uncharged(&self, thread: Thread, layout: Layout, zeroed: bool) -> *mut u8 {
        if thread.in_own_scope() {
            let block = crate::own::alloc(layout, zeroed);
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller's.
        let block = unsafe { self.place_charged(thread, layout, zeroed) };
        if COUNTED && !block.is_null() {
            counts::malloc(thread.writer(), layout.size());
        }
        block
    }

    /// Charges an allocation to the thread, takes the sample if that comes of it, and places the
    /// block. The ledger is left to the caller.
    unsafe fn place_charged(&self, thread: Thread, layout: Layout, zeroed: bool) -> *mut u8 {
        let size = layout.size();
        let Some(weight) = thread.charge(size) else {
            // SAFETY: the caller's.
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
                record_small(sample, counted, block);
                return block;
            }
        }
        // SAFETY: the caller's.
        let block = unsafe { self.place_inside(layout, zeroed) };
        if !block.is_null() {
            let sample = sample.record_malloc(counted);
            if size <= size_class::LARGEST || !SAMPLED_LARGE.note(block as usize, sample) {
                sample.lose_track(counted);
            }
        }
        block
    }

    /// A free above [`size_class::LARGEST_STEP`] of a block that is the inner allocator's.
    ///
    /// # Safety
    /// As for `GlobalAlloc::dealloc`; the thread's area is not null.
    #[inline(never)]
    unsafe fn dealloc_larger(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the condition of this function; `block` came from the inner allocator.
        unsafe {
            let area = (*thread::route()).area.get();
            match size_class::of(layout.size()) {
                Some(class) if COUNTED => counts::free_in(area, class),
                Some(_) => {}
                None => {
                    // The address may be another thread's as soon as the block is free.
                    forget_large(block, layout.size());
                    if COUNTED {
                        counts::free_large(area, layout.size());
                    }
                }
            }
            self.inner.dealloc(block, layout);
        }
    }

    /// A free of a block that may not be the inner allocator's, or by a thread that is not set up.
    #[cold]
    #[inline(never)]
    unsafe fn dealloc_slowly(&self, block: *mut u8, layout: Layout) {
        if crate::own::contains(block as usize) {
            // SAFETY: the caller's; the block came from there.
            return unsafe { crate::own::free(block, layout) };
        }
        let thread = self.noticed(Thread::current());
        let size = layout.size();
        if sampled_blocks::contains(block as usize) {
            sampled_blocks::sample(block).record_free(size_class::counted_size(size));
            self.count_free(thread, size);
            return sampled_blocks::give_back(block, size);
        }
        forget_large(block, size);
        self.count_free(thread, size);
        // SAFETY: the caller's.
        unsafe { self.inner.dealloc(block, layout) }
    }

    /// Counts a free on a path that may lack an area.
    fn count_free(&self, thread: Thread, size: usize) {
        if COUNTED {
            counts::free(thread.writer(), size);
        }
    }

    /// Counts a free and an allocation in one cut, on a path that may lack an area.
    fn count_realloc(&self, thread: Thread, old_size: usize, new_size: usize) {
        if COUNTED {
            counts::realloc(thread.writer(), old_size, new_size);
        }
    }

    /// A reallocation of a block of Plimsoll's own. If its heap has no room, the block becomes one
    /// of the program's.
    ///
    /// # Safety
    /// The block is one of Plimsoll's own, of the layout `old`; both layouts have the same
    /// alignment.
    unsafe fn realloc_own(
        &self,
        thread: Thread,
        block: *mut u8,
        old: Layout,
        new: Layout,
    ) -> *mut u8 {
        // SAFETY: the caller's.
        let grown = unsafe { crate::own::realloc(block, old, new.size()) };
        if !grown.is_null() {
            return grown;
        }
        // SAFETY: the caller's; the blocks do not overlap, and each is as long as is copied.
        unsafe {
            let moved = self.place_uncharged(thread, new, false);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
                crate::own::free(block, old);
            }
            moved
        }
    }

    /// A reallocation from or to a size above [`size_class::LARGEST_STEP`], or with a large
    /// alignment.
    ///
    /// # Safety
    /// As for `GlobalAlloc::realloc`.
    #[inline(never)]
    unsafe fn realloc_larger(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `realloc`.
        unsafe {
            let countdown = &*thread::countdown();
            let left = countdown.get().wrapping_sub(new_size as i64);
            countdown.set(left);
            let both_have_a_class = layout.size().max(new_size) <= size_class::LARGEST;
            if left < 0 || (block as usize) < (*thread::route()).limit.get() || !both_have_a_class {
                return self.realloc_slowly(block, layout, new_size);
            }
            let moved = self.inner.realloc(block, layout, new_size);
            if COUNTED && !moved.is_null() {
                counts::realloc_larger((*thread::route()).area.get(), layout.size(), new_size);
            }
            moved
        }
    }

    /// A reallocation that is sampled, or of a sampled or a large block, or Plimsoll's own, or by a
    /// thread that is not set up.
    #[cold]
    #[inline(never)]
    unsafe fn realloc_slowly(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let thread = self.noticed(Thread::allocating(new_size));
        // SAFETY: the caller vouches that `new_size`, rounded up to the alignment, does not
        // overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if crate::own::contains(block as usize) {
            // SAFETY: the caller's; the block came from there.
            return unsafe { self.realloc_own(thread, block, layout, new_layout) };
        }
        // SAFETY: the caller's.
        unsafe {
            if sampled_blocks::contains(block as usize) {
                self.move_sampled(thread, block, layout, new_layout)
            } else {
                self.realloc_inside(thread, block, layout, new_layout)
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
        // SAFETY: the caller's; both blocks are at least as long as what is copied, and distinct.
        unsafe {
            let moved = self.place_charged(thread, new, false);
            if moved.is_null() {
                return moved;
            }
            moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
            sampled_blocks::sample(block).record_replaced(size_class::counted_size(old.size()));
            self.count_realloc(thread, old.size(), new.size());
            sampled_blocks::give_back(block, old.size());
            moved
        }
    }

    /// Reallocates a block of the inner allocator. If the new one is sampled and small, it moves
    /// out.
    unsafe fn realloc_inside(
        &self,
        thread: Thread,
        block: *mut u8,
        old: Layout,
        new: Layout,
    ) -> *mut u8 {
        let (old_counted, new_counted) = (
            size_class::counted_size(old.size()),
            size_class::counted_size(new.size()),
        );
        let weight = thread.charge(new.size());
        let sample = weight.map(|weight| Sample::take(new_counted, weight));
        // The address may be another thread's as soon as the block has moved.
        let old_sample = large_sample(block, old.size());
        if let Some(sample) = sample.filter(|_| new.size() <= size_class::LARGEST) {
            let moved = sampled_blocks::take(new.size(), new.align(), sample);
            if !moved.is_null() {
                record_small(sample, new_counted, moved);
                if let Some(old_sample) = old_sample {
                    old_sample.record_replaced(old_counted);
                }
                self.count_realloc(thread, old.size(), new.size());
                // SAFETY: both blocks are at least as long as what is copied; the old one is the
                // caller's.
                unsafe {
                    moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
                    self.inner.dealloc(block, old);
                }
                return moved;
            }
        }
        // SAFETY: the caller's.
        let moved = unsafe { self.inner.realloc(block, old, new.size()) };
        if moved.is_null() {
            if let Some(old_sample) =
                old_sample.filter(|&sample| !SAMPLED_LARGE.note(block as usize, sample))
            {
                old_sample.lose_track(old_counted);
            }
            return moved;
        }
        if let Some(old_sample) = old_sample {
            old_sample.record_replaced(old_counted);
        }
        if let Some(sample) = sample {
            let sample = sample.record_malloc(new_counted);
            if new.size() <= size_class::LARGEST || !SAMPLED_LARGE.note(moved as usize, sample) {
                sample.lose_track(new_counted);
            }
        }
        self.count_realloc(thread, old.size(), new.size());
        moved
    }
}

/// Records the allocation of a sampled block that has a slot.
fn record_small(sample: Sample, counted: usize, block: *mut u8) {
    sampled_blocks::note_recorded(block, sample.record_malloc(counted));
}

/// What a large block of the inner allocator stands for, if it was sampled.
fn large_sample(block: *mut u8, size: usize) -> Option<Sample> {
    if size > size_class::LARGEST {
        SAMPLED_LARGE.take(block as usize)
    } else {
        None
    }
}

/// Records the free of a large block, if it was sampled.
fn forget_large(block: *mut u8, size: usize) {
    if let Some(sample) = large_sample(block, size) {
        sample.record_free(size);
    }
}

/// Bytes of Plimsoll's own memory behind the door: what is accessible, and how much of that are the
/// program's sampled blocks.
pub(crate) fn self_bytes() -> (usize, usize) {
    let (blocks, in_use) = sampled_blocks::bytes();
    (blocks + SAMPLED_LARGE.bytes(), in_use)
}

/// Whether the allocator below was found to be the C library's.
static IS_OVER_C: AtomicBool = AtomicBool::new(false);

/// Where a block of the allocator below was: one is allocated, and freed. `None` where that is the
/// C library's, which was found out before, or is known.
pub(crate) fn probe() -> Option<usize> {
    #[cfg(feature = "preload")]
    if matches!(c::below(), c::Below::Libc) {
        return None;
    }
    if IS_OVER_C.load(Ordering::Relaxed) {
        return None;
    }
    let layout = Layout::new::<[usize; 6]>();
    // SAFETY: a block of a valid layout, freed with that.
    Some(thread::outside_own_scopes(|| unsafe {
        let block = std::alloc::alloc(layout);
        if !block.is_null() {
            std::alloc::dealloc(block, layout);
        }
        block as usize
    }))
}

/// Whether the allocator below is the C library's, given what [`probe`] says, and where that has
/// its blocks.
pub(crate) fn is_over_c(probe: Option<usize>, is_of_c: impl Fn(usize) -> bool) -> bool {
    let is_over_c = probe.is_none_or(is_of_c);
    IS_OVER_C.store(is_over_c, Ordering::Relaxed);
    is_over_c
}

/// Where blocks of the program's are that were sampled, apart from the allocator's.
pub(crate) fn sampled_range() -> std::ops::Range<usize> {
    sampled_blocks::range()
}
