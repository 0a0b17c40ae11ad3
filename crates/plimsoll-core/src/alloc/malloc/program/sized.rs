//! jemalloc without `malloc_usable_size`, as the linker leaves it in Rust programs that do not call that
//! function.
//!
//! The sizes of blocks come from the arguments. A free passes the size, and the usable size follows from
//! it by jemalloc's classes. A reallocation does not pass the old size; but the function that jemalloc
//! calls for it, `arena_ralloc`, gets the usable one.

use std::cell::Cell;
use std::ffi::CStr;

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::arch::pass_on;
use super::hooks::{Function, charge_and_count, forget, is_inside, note};
use crate::alloc::counts;
use crate::alloc::malloc::cold::sampled;
use crate::alloc::malloc::underlying::{ENTERED, Entered};
use crate::alloc::malloc::{count_realloc, placed_larger};
use crate::alloc::samples::{give_back, take_anywhere};
use crate::alloc::thread::Thread;
use crate::{internal_scope, size_class};

/// A function and its hook.
pub(super) struct Entry {
    pub(super) name: &'static CStr,
    pub(super) hook: unsafe extern "C" fn(),
}

/// The number of functions.
pub(super) const COUNT: usize = 9;

/// The functions whose sizes are known. If the program has others that make or free blocks, nothing is
/// redirected.
pub(super) static ENTRIES: [Entry; COUNT] = {
    macro_rules! entry {
        ($name:literal, $hook:expr, $kind:ty) => {
            Entry {
                name: $name,
                // SAFETY: only the address is used.
                hook: unsafe { std::mem::transmute::<$kind, unsafe extern "C" fn()>($hook) },
            }
        };
    }
    type Two = unsafe extern "C-unwind" fn(usize, usize) -> usize;
    type Three = unsafe extern "C-unwind" fn(usize, usize, usize) -> usize;
    [
        entry!(c"malloc", make::<0, SIZE>, Two),
        entry!(c"calloc", make::<1, PRODUCT>, Two),
        entry!(c"mallocx", make::<2, FLAGS>, Two),
        entry!(c"aligned_alloc", make::<3, ALIGN_FIRST>, Two),
        entry!(c"memalign", make::<4, ALIGN_FIRST>, Two),
        entry!(c"sdallocx", free, Three),
        entry!(c"realloc", replace::<6, SIZE>, Three),
        entry!(c"rallocx", replace::<7, FLAGS>, Three),
        Entry {
            name: ARENA_RALLOC,
            hook: plimsoll_old_size,
        },
    ]
};

const FREE: usize = 5;

/// jemalloc's inner function, with the prefix of its private names.
const ARENA_RALLOC: &CStr = c"je_arena_ralloc";

/// The indices of the functions that need [`ARENA_RALLOC`], the last one.
pub(super) const REPLACE: std::ops::Range<usize> = 6..8;

/// The trampolines of the original functions.
pub(super) static ORIGINALS: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// Stores the trampoline of the original function at an index.
pub(super) fn set_original(at: usize, address: usize) {
    ORIGINALS[at].store(address, Ordering::Relaxed);
    if at == COUNT - 1 {
        ARENA_RALLOC_ORIGINAL.store(address, Ordering::Relaxed);
    }
}

static ARENA_RALLOC_ORIGINAL: AtomicUsize = AtomicUsize::new(0);

pass_on!(plimsoll_old_size, note_old_size, ARENA_RALLOC_ORIGINAL);

thread_local! {
    /// The address and the usable size of the block that jemalloc is replacing.
    static REPLACED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Notes the third and the fourth argument of `arena_ralloc`: a block and its usable size.
extern "C" fn note_old_size(block: usize, size: usize) {
    REPLACED.set((block, size));
}

/// Forms of arguments: the size.
const SIZE: u8 = 0;
/// Two factors.
const PRODUCT: u8 = 1;
/// The size, and flags with the alignment.
const FLAGS: u8 = 2;
/// The alignment, and the size.
const ALIGN_FIRST: u8 = 3;

/// Returns the requested size, and the usable size.
#[inline(always)]
fn sizes<const FORM: u8>(first: usize, second: usize) -> (usize, usize) {
    match FORM {
        PRODUCT => {
            let size = first.saturating_mul(second);
            (size, class_of(size))
        }
        FLAGS => (first, with_flags(first, second)),
        ALIGN_FIRST => (second, aligned(second, first)),
        _ => (first, class_of(first)),
    }
}

/// jemalloc's variable by which it rounds large sizes to pages: its usual setting since 5.3.1.
pub(super) const ROUNDS_TO_PAGES: &CStr = c"_rjem_je_opt_disable_large_size_classes";

/// The address of that variable; 0 if the version has none.
static ROUNDS_TO_PAGES_AT: AtomicUsize = AtomicUsize::new(0);

/// Stores the address of the variable by which large sizes are rounded to pages.
pub(super) fn rounds_to_pages_by(address: usize) {
    ROUNDS_TO_PAGES_AT.store(address, Ordering::Relaxed);
}

/// Returns whether large sizes are rounded to pages.
#[cold]
fn rounds_to_pages() -> bool {
    let flag = ROUNDS_TO_PAGES_AT.load(Ordering::Relaxed) as *const u8;
    // SAFETY: the program has a variable of one byte there, which jemalloc changes at its start only.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

const PAGE: usize = 4096;
const LARGEST_SMALL: usize = 14336;
const SMALLEST_LARGE: usize = 16384;

/// Returns the usable size of a request of `size` bytes: four classes for each power of two, or pages.
#[inline(always)]
fn class_of(size: usize) -> usize {
    if size <= 8 {
        return 8;
    }
    if size > LARGEST_SMALL && rounds_to_pages() {
        return size.next_multiple_of(PAGE);
    }
    // Of twice the size, rounded up to a power of two.
    let exponent = (2 * size - 1).ilog2();
    let step = 1 << exponent.saturating_sub(3).max(4);
    (size + (step - 1)) & !(step - 1)
}

/// Returns the usable size of a request with jemalloc's flags, whose low bits are the exponent of the
/// alignment.
#[inline(always)]
fn with_flags(size: usize, flags: usize) -> usize {
    match flags & 63 {
        0 => class_of(size),
        exponent => aligned(size, 1 << exponent),
    }
}

/// Returns the usable size of an aligned request.
fn aligned(size: usize, align: usize) -> usize {
    if size <= LARGEST_SMALL && align <= PAGE {
        let class = class_of(size.next_multiple_of(align.max(1)));
        if class < SMALLEST_LARGE {
            return class;
        }
    }
    class_of(size).max(SMALLEST_LARGE)
}

/// Calls the original function.
///
/// # Safety
/// The arguments meet the contract of the function at index `AT`, which is redirected.
#[inline(always)]
unsafe fn original<const AT: usize>(arguments: [usize; 3]) -> usize {
    let [a, b, c] = arguments;
    // SAFETY: the trampoline has the type of its function, which ignores further arguments; its
    // contract is met, by this function's.
    unsafe {
        let function = ORIGINALS[AT].load(Ordering::Relaxed);
        std::mem::transmute::<usize, Function>(function)(a, b, c, 0)
    }
}

/// Calls the original function, during which the thread is inside the allocator.
///
/// # Safety
/// As for [`original`].
#[inline(always)]
unsafe fn enter<const AT: usize>(arguments: [usize; 3]) -> usize {
    let _entered = Entered::<ENTERED>::begin();
    // SAFETY: the same contract.
    unsafe { original::<AT>(arguments) }
}

/// A function that returns a new block.
///
/// # Safety
/// As for the function at index `AT`.
unsafe extern "C-unwind" fn make<const AT: usize, const FORM: u8>(
    first: usize,
    second: usize,
) -> usize {
    // SAFETY: the arguments are the caller's. Countdown and route are the thread's own storage; the
    // area is not null if the countdown is not negative.
    unsafe {
        if is_inside() {
            return original::<AT>([first, second, 0]);
        }
        let block = enter::<AT>([first, second, 0]);
        if block == 0 {
            return 0;
        }
        let (asked, got) = sizes::<FORM>(first, second);
        let countdown = &*internal_scope::countdown();
        let left = countdown.get().wrapping_sub(asked as i64);
        if left < 0 {
            charge_and_count(block, got, asked);
            return block;
        }
        countdown.set(left);
        if got > size_class::LARGEST_STEP {
            return placed_larger(block as *mut u8, got, asked) as usize;
        }
        let area = (*internal_scope::route()).area.get();
        counts::malloc_small(area, got);
        counts::asked_in(area, asked);
        block
    }
}

/// `sdallocx`.
///
/// # Safety
/// As for that function.
unsafe extern "C-unwind" fn free(block: usize, size: usize, flags: usize) -> usize {
    // SAFETY: the arguments are the caller's. The route is the thread's own storage; its area is not
    // null if a block is above the limit.
    unsafe {
        if is_inside() {
            return original::<FREE>([block, size, flags]);
        }
        let route = &*internal_scope::route();
        let usable = with_flags(size, flags);
        if block < route.limit.get() || usable > size_class::LARGEST_STEP {
            free_cold(block, usable);
        } else {
            forget(block, usable);
            counts::free_small(route.area.get(), usable);
        }
        enter::<FREE>([block, size, flags])
    }
}

/// Counts the free of a large block, or by a thread that is not set up.
#[cold]
#[inline(never)]
extern "C" fn free_cold(block: usize, usable: usize) {
    let thread = Thread::current();
    forget(block, usable);
    counts::free(thread.writer(), usable);
}

/// `realloc` and `rallocx`.
///
/// # Safety
/// As for the function at index `AT`.
unsafe extern "C-unwind" fn replace<const AT: usize, const FORM: u8>(
    block: usize,
    size: usize,
    flags: usize,
) -> usize {
    // SAFETY: the arguments are the caller's; the block is null or live.
    unsafe {
        if is_inside() {
            return original::<AT>([block, size, flags]);
        }
        let thread = Thread::allocating(0);
        let (asked, new) = sizes::<FORM>(size, flags);
        if block == 0 {
            let made = enter::<AT>([block, size, flags]);
            if made != 0 {
                charge_and_count(made, new, asked);
            }
            return made;
        }
        let sample = take_anywhere(block as *mut u8);
        REPLACED.set((0, 0));
        let moved = enter::<AT>([block, size, flags]);
        let old = match REPLACED.get() {
            (replaced, old) if replaced == block => old,
            // Nothing was replaced, as for a size that no block can have.
            _ => new,
        };
        let old_counted = size_class::counted_size(old);
        if moved == 0 {
            if let Some(sample) = sample {
                give_back(sample, old_counted, block as *mut u8);
            }
            return 0;
        }
        if let Some(sample) = sample {
            sample.record_replaced(old_counted);
        }
        let stands_for = match thread.charge(asked) {
            Some(weight) => note(thread, moved, new, weight),
            None => 0,
        };
        count_realloc(old, new, asked);
        sampled(stands_for);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::{aligned, class_of};

    /// By jemalloc's rules, with classes for large sizes.
    #[test]
    fn usable_sizes_are_those_of_jemalloc() {
        for (size, usable) in [
            (0, 8),
            (1, 8),
            (8, 8),
            (9, 16),
            (17, 32),
            (100, 112),
            (128, 128),
            (129, 160),
            (256, 256),
            (257, 320),
            (1025, 1280),
            (14336, 14336),
            (14337, 16384),
            (16385, 20480),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, 5 << 18),
        ] {
            assert_eq!(class_of(size), usable, "{size}");
        }
        for (size, align, usable) in [
            (1, 16, 16),
            (33, 64, 64),
            (65, 64, 128),
            (100, 256, 256),
            (4097, 4096, 8192),
            (14000, 4096, 16384),
            (10, 8192, 16384),
            (20000, 8192, 20480),
        ] {
            assert_eq!(aligned(size, align), usable, "{size} {align}");
        }
    }
}
