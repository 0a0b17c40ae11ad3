//! The hooks to which the functions of the program's allocator are redirected.
//!
//! Each hook has the type of its function, or more arguments than that: these are passed on in the
//! same registers. An original function may throw an exception, which passes through its hook.

use plimsoll_sys::os::region::page_size;
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::names::{COUNT, MIMALLOC_COUNT};
use crate::malloc::cold::sampled;
use crate::malloc::underlying::{ENTERED, Entered};
use crate::malloc::{Make, count_malloc, count_realloc, internal_blocks, placed_larger, refuse};
use plimsoll_core::alloc::counts;
use plimsoll_core::alloc::sampled_inside::{self, SAMPLED_INSIDE};
use plimsoll_core::alloc::samples::{forget_anywhere, give_back, record_anywhere, take_anywhere};
use plimsoll_core::alloc::thread::Thread;
use plimsoll_core::internal_scope;
use plimsoll_core::sampler::{Sample, Weight};
use plimsoll_ledger::size_class;

/// The trampolines of the original functions, in the order of the names.
pub(super) static ORIGINALS: [AtomicUsize; COUNT + MIMALLOC_COUNT] =
    [const { AtomicUsize::new(0) }; COUNT + MIMALLOC_COUNT];

/// The address of the allocator's `malloc_usable_size`.
pub(super) static USABLE: AtomicUsize = AtomicUsize::new(0);

/// The functions' common type: unused arguments are ignored.
pub(super) type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> usize;

/// # Safety
/// The arguments meet the contract of the function at index `AT`, which is redirected.
#[inline(always)]
unsafe fn original<const AT: usize>(arguments: [usize; 4]) -> usize {
    let [a, b, c, d] = arguments;
    // SAFETY: the trampoline has the type of its function, which ignores further arguments; its
    // contract is met, by this function's.
    unsafe {
        let function = ORIGINALS[AT].load(Ordering::Relaxed);
        std::mem::transmute::<usize, Function>(function)(a, b, c, d)
    }
}

/// Calls the original function, during which the thread is inside the allocator.
///
/// # Safety
/// As for [`original`].
#[inline(always)]
unsafe fn enter<const AT: usize>(arguments: [usize; 4]) -> usize {
    let _entered = Entered::<ENTERED>::begin();
    // SAFETY: the same contract.
    unsafe { original::<AT>(arguments) }
}

/// Returns the usable size of a block of the program's allocator, at which it counts.
///
/// # Safety
/// The block is live, and not null.
#[inline(always)]
unsafe fn usable(block: usize) -> usize {
    // SAFETY: the program's function has this type, and the block is its allocator's, by this
    // function's contract.
    unsafe {
        let function = USABLE.load(Ordering::Relaxed);
        std::mem::transmute::<usize, unsafe extern "C" fn(usize) -> usize>(function)(block)
    }
}

#[inline(always)]
pub(super) fn is_inside() -> bool {
    // SAFETY: `inside` returns the thread's own storage.
    unsafe { (*internal_scope::inside()).get() != 0 }
}

/// Returns whether an allocation on this thread is Plimsoll's own.
fn in_own_scope() -> bool {
    internal_scope::is_inside()
}

/// Forms of arguments: the size is the first.
pub(super) const FIRST: u8 = 0;
/// The size is the product of the two arguments.
pub(super) const PRODUCT: u8 = 1;
/// The alignment is the first argument, and the size is the second.
pub(super) const SECOND: u8 = 2;
/// The size is the first argument, and the alignment is the second.
pub(super) const ALIGNED: u8 = 3;
/// The size is the first argument, and the block consists of pages.
pub(super) const PAGES: u8 = 4;

#[inline(always)]
fn size_in<const FORM: u8>(first: usize, second: usize) -> usize {
    match FORM {
        PRODUCT => first.saturating_mul(second),
        SECOND => second,
        _ => first,
    }
}

/// A function that returns a new block.
///
/// # Safety
/// As for the function at index `AT`.
pub(super) unsafe extern "C-unwind" fn make<const AT: usize, const FORM: u8>(
    first: usize,
    second: usize,
    third: usize,
) -> usize {
    let asked = size_in::<FORM>(first, second);
    // SAFETY: the arguments are the caller's. Countdown and route are the thread's own storage; the
    // area is not null if the countdown is not negative.
    unsafe {
        if is_inside() {
            return original::<AT>([first, second, third, 0]);
        }
        let countdown = &*internal_scope::countdown();
        if countdown.get().wrapping_sub(asked as i64) < 0 {
            return make_cold::<AT, FORM>(first, second, third);
        }
        let block = enter::<AT>([first, second, third, 0]);
        if block == 0 {
            return 0;
        }
        let left = countdown.get().wrapping_sub(asked as i64);
        if left < 0 {
            // A signal handler has allocated meanwhile.
            made(block, asked);
            return block;
        }
        countdown.set(left);
        let got = usable(block);
        if got > size_class::LARGEST_STEP {
            return placed_larger(block as *mut u8, got, asked) as usize;
        }
        let area = (*internal_scope::route()).area.get();
        counts::malloc_small(area, got);
        counts::asked_in(area, asked);
        block
    }
}

/// Makes an allocation that is sampled, or Plimsoll's own, or by a thread that is not set up.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn make_cold<const AT: usize, const FORM: u8>(
    first: usize,
    second: usize,
    third: usize,
) -> usize {
    let asked = size_in::<FORM>(first, second);
    if in_own_scope() {
        let make = match FORM {
            PRODUCT => Make::Zeroed,
            SECOND => Make::Aligned(first.next_power_of_two()),
            ALIGNED => Make::Aligned(second.next_power_of_two()),
            PAGES => Make::Aligned(page_size()),
            _ => Make::Plain,
        };
        let block = internal_blocks::place(make, asked);
        if !block.is_null() {
            return block as usize;
        }
    }
    // SAFETY: the arguments are the caller's; the block is new.
    unsafe {
        let block = enter::<AT>([first, second, third, 0]);
        if block != 0 {
            made(block, asked);
        }
        block
    }
}

/// Charges, samples and counts a new block on the cold path.
///
/// # Safety
/// The program's allocator just returned the block.
#[cold]
#[inline(never)]
unsafe extern "C" fn made(block: usize, asked: usize) {
    // SAFETY: the block is live, by this function's contract.
    charge_and_count(block, unsafe { usable(block) }, asked);
}

/// Charges, samples and counts a new block of `got` bytes.
pub(super) fn charge_and_count(block: usize, got: usize, asked: usize) {
    let thread = Thread::allocating(0);
    let stands_for = match thread.charge(asked) {
        Some(weight) => note(thread, block, got, weight),
        None => 0,
    };
    count_malloc(thread, got, asked);
    sampled(stands_for);
}

/// Notes a sampled block. Returns the bytes for which it stands.
pub(super) fn note(thread: Thread, block: usize, got: usize, weight: Weight) -> u64 {
    let counted = size_class::counted_size(got);
    let sample = Sample::take(counted, weight);
    record_anywhere(thread, sample, counted, block as *mut u8);
    weight.times(counted)
}

/// `posix_memalign`.
///
/// # Safety
/// As for that function.
pub(super) unsafe extern "C-unwind" fn store<const AT: usize>(
    to: *mut usize,
    align: usize,
    asked: usize,
) -> usize {
    // SAFETY: the arguments are the caller's; the original function has stored a new block if it
    // returns 0.
    unsafe {
        if is_inside() {
            return original::<AT>([to as usize, align, asked, 0]);
        }
        if in_own_scope() && align.is_power_of_two() {
            let block = internal_blocks::place(Make::Aligned(align), asked);
            if !block.is_null() {
                *to = block as usize;
                return 0;
            }
        }
        let error = enter::<AT>([to as usize, align, asked, 0]);
        if error as i32 == 0 && *to != 0 {
            made(*to, asked);
        }
        error
    }
}

/// Records the free of a block of `size` bytes, if it was sampled. The thread is set up.
#[inline(always)]
pub(super) fn forget(block: usize, size: usize) {
    if sampled_inside::may_have(block) {
        forget_anywhere(block as *mut u8, size_class::counted_size(size));
    }
}

/// A function that frees the block in its first argument.
///
/// # Safety
/// As for the function at index `AT`.
pub(super) unsafe extern "C-unwind" fn free<const AT: usize>(
    block: usize,
    second: usize,
    third: usize,
) -> usize {
    // SAFETY: the arguments are the caller's. The route is the thread's own storage; its area is not
    // null if a block is above the limit.
    unsafe {
        let route = &*internal_scope::route();
        if is_inside() {
            return original::<AT>([block, second, third, 0]);
        }
        if block < route.limit.get() {
            return free_cold::<AT>(block, second, third);
        }
        let size = usable(block);
        forget(block, size);
        if size > size_class::LARGEST_STEP {
            counts::free(Thread::current().writer(), size);
        } else {
            counts::free_small(route.area.get(), size);
        }
        enter::<AT>([block, second, third, 0])
    }
}

/// Frees a null pointer, or a block of Plimsoll, or a block on a thread that is not set up.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn free_cold<const AT: usize>(
    block: usize,
    second: usize,
    third: usize,
) -> usize {
    // SAFETY: the arguments are the caller's.
    unsafe {
        if block != 0 {
            if plimsoll_core::internal_heap::contains(block) {
                internal_blocks::free(block as *mut u8);
                return 0;
            }
            let size = usable(block);
            let thread = Thread::current();
            forget(block, size);
            counts::free(thread.writer(), size);
        }
        enter::<AT>([block, second, third, 0])
    }
}

/// A function that returns a block in place of its first argument.
///
/// # Safety
/// As for the function at index `AT`.
pub(super) unsafe extern "C-unwind" fn replace<const AT: usize, const FORM: u8>(
    block: usize,
    first: usize,
    second: usize,
) -> usize {
    let asked = size_in::<FORM>(first, second);
    // SAFETY: the arguments are the caller's; the block is null or live.
    unsafe {
        if is_inside() {
            return original::<AT>([block, first, second, 0]);
        }
        if block == 0 {
            if in_own_scope() {
                let block = internal_blocks::place(Make::Plain, asked);
                if !block.is_null() {
                    return block as usize;
                }
            }
            let new = enter::<AT>([0, first, second, 0]);
            if new != 0 {
                made(new, asked);
            }
            return new;
        }
        if plimsoll_core::internal_heap::contains(block) {
            return replace_own(block as *mut u8, asked);
        }
        let thread = Thread::allocating(0);
        let old = usable(block);
        let old_counted = size_class::counted_size(old);
        let old_sample = take_anywhere(block as *mut u8);
        let moved = enter::<AT>([block, first, second, 0]);
        if moved == 0 {
            if asked == 0 {
                // The function has freed the block, as most do.
                if let Some(sample) = old_sample {
                    sample.record_free(old_counted, false);
                }
                counts::free(thread.writer(), old);
            } else if let Some(sample) = old_sample {
                give_back(sample, old_counted, block as *mut u8);
            }
            return 0;
        }
        if let Some(sample) = old_sample {
            sample.record_replaced(old_counted);
        }
        let new = usable(moved);
        let stands_for = match thread.charge(asked) {
            Some(weight) => note(thread, moved, new, weight),
            None => 0,
        };
        count_realloc(old, new, asked);
        sampled(stands_for);
        moved
    }
}

/// Replaces a block of Plimsoll.
///
/// # Safety
/// The block is Plimsoll's own, and live.
#[cold]
unsafe fn replace_own(block: *mut u8, asked: usize) -> usize {
    // SAFETY: both blocks are at least as long as the copied part, and distinct.
    unsafe {
        let moved = internal_blocks::place(Make::Plain, asked);
        if moved.is_null() {
            return refuse(libc::ENOMEM) as usize;
        }
        let size = internal_blocks::size(block).min(asked);
        moved.copy_from_nonoverlapping(block, size);
        internal_blocks::free(block);
        moved as usize
    }
}

/// jemalloc's `xallocx`, which changes the size of a block in place. A sampled block is no longer
/// followed after that.
///
/// # Safety
/// As for that function.
pub(super) unsafe extern "C-unwind" fn resize<const AT: usize>(
    block: usize,
    size: usize,
    extra: usize,
    flags: usize,
) -> usize {
    // SAFETY: the arguments are the caller's; the block is live.
    unsafe {
        if is_inside() {
            return original::<AT>([block, size, extra, flags]);
        }
        let old = usable(block);
        let result = enter::<AT>([block, size, extra, flags]);
        let new = usable(block);
        if new != old {
            if let Some(sample) = SAMPLED_INSIDE.take(block) {
                sample.record_replaced(size_class::counted_size(old));
            }
            count_realloc(old, new, size);
        }
        result
    }
}
