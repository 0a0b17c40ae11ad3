//! The allocator door of C: `malloc` and its like, for a library that is preloaded into a program.
//!
//! They are [`super::Alloc`] once more, but for what C does not say: the size of a block that is
//! freed. So a block counts as what it got, which the allocator below knows of any block; what was
//! asked for is counted beside it. A sampled block, which is not the allocator's, has that in the
//! last bytes of its slot.

mod high_water;
mod inner;
mod sized;

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::sampled_large::SAMPLED_LARGE;
use super::thread::{self, Thread};
use super::{counts, large_sample, record_small, sampled_blocks, size_class};
use crate::sampler::{Sample, Weight};
pub(crate) use high_water::most;
pub(crate) use inner::is_in_allocator;
use inner::{ANYHOW, ENTERED, Entered, WITH_HEADERS, WITH_SIZES};
pub use inner::{Below, below, is_allocators};

/// The alignment of every block.
const ALIGN: usize = 16;

/// The size of a block's note in its slot.
const NOTE: usize = 8;

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

/// The same of nothing, or of a block that may not be the allocator's.
#[cold]
#[inline(never)]
unsafe extern "C" fn usable_size_of_any(block: *mut u8) -> usize {
    if block.is_null() {
        0
    } else if sampled_blocks::contains(block as usize) {
        // SAFETY: the caller's: it is a block.
        unsafe { noted_size(block) }
    } else if crate::own::contains(block as usize) {
        // SAFETY: as above.
        unsafe { own_size(block) }
    } else {
        // SAFETY: as above.
        unsafe { inner::usable::<ANYHOW>(block) }
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

/// A free of nothing, or of a block that may not be the allocator's, or by a thread that is not set
/// up.
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: the caller's: it is a block.
    unsafe {
        if crate::own::contains(block as usize) {
            return free_own(block);
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
fn forget_large(block: *mut u8, size: usize) {
    if let Some(sample) = large_sample(block, size) {
        sample.record_free(size);
    }
}

/// An allocation that is sampled, or Plimsoll's own, or by a thread that is not set up.
#[cold]
#[inline(never)]
unsafe extern "C" fn place_slowly(make: Make, size: usize) -> *mut c_void {
    let thread = Thread::current();
    if thread.in_own_scope() {
        thread.uncharge(size);
        let block = place_own(make, size);
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
unsafe extern "C" fn realloc_slowly(block: *mut u8, size: usize) -> *mut c_void {
    let thread = Thread::current();
    // SAFETY: the caller's: it is a block.
    unsafe {
        if crate::own::contains(block as usize) {
            thread.uncharge(size);
            return realloc_own(block, size).cast();
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

/// Blocks of Plimsoll's own: before each stands how long it is, and where it begins.
#[repr(C)]
struct OwnHeader {
    start: *mut u8,
    size: usize,
}

fn place_own(make: Make, size: usize) -> *mut u8 {
    let align = make.align();
    let header = size_of::<OwnHeader>().max(align);
    let Some(layout) = own_layout(size, header, align) else {
        return null_mut();
    };
    let start = crate::own::alloc(layout, matches!(make, Make::Zeroed));
    if start.is_null() {
        return start;
    }
    // SAFETY: the header lies within what was just allocated, before the block.
    unsafe {
        let block = start.add(header);
        block
            .cast::<OwnHeader>()
            .sub(1)
            .write(OwnHeader { start, size });
        block
    }
}

fn own_layout(size: usize, header: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(header)?, align).ok()
}

/// # Safety
/// The block is one of [`place_own`]'s.
unsafe fn own_size(block: *mut u8) -> usize {
    // SAFETY: the caller's.
    unsafe { (*block.cast::<OwnHeader>().sub(1)).size }
}

/// # Safety
/// As for [`own_size`].
unsafe fn free_own(block: *mut u8) {
    // SAFETY: the caller's; the alignment makes no difference to the heap.
    unsafe {
        let OwnHeader { start, size } = block.cast::<OwnHeader>().sub(1).read();
        let header = block as usize - start as usize;
        if let Some(layout) = own_layout(size, header, ALIGN) {
            crate::own::free(start, layout);
        }
    }
}

/// # Safety
/// As for [`own_size`].
unsafe fn realloc_own(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's; both blocks are at least as long as what is copied, and distinct.
    unsafe {
        let mut moved = place_own(Make::Plain, size);
        if moved.is_null() {
            moved = place_slowly(Make::Plain, size).cast();
        }
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(block, own_size(block).min(size));
            free_own(block);
        }
        moved
    }
}
