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
use super::jemalloc_classes::{aligned, class_of, with_flags};
use crate::malloc::cold::sampled;
use crate::malloc::underlying::{ENTERED, Entered};
use crate::malloc::{count_realloc, placed_larger};
use plimsoll_core::alloc::counts;
use plimsoll_core::alloc::samples::{give_back, take_anywhere};
use plimsoll_core::alloc::thread::Thread;
use plimsoll_core::internal_scope;
use plimsoll_ledger::size_class;

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
