//! The global allocator, and its counts.

use std::alloc::{GlobalAlloc, Layout, System};

use plimsoll_sys::primitives::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::HeapStats;
use super::blocks::Blocks;
use plimsoll_core::alloc::Alloc as Inner;
use plimsoll_core::internal_scope;

/// The global allocator for [`Profiler`](super::Profiler): the system's, with Plimsoll's counts and
/// samples, as [`plimsoll::Alloc::system()`](plimsoll_core::alloc::Alloc::system).
///
/// ```
/// # use plimsoll::dhat;
/// #[global_allocator]
/// static ALLOC: dhat::Alloc = dhat::Alloc;
/// # fn main() { drop(vec![1]); }
/// ```
///
/// While a profiler runs, it also counts requested bytes, on all threads in common places. Each
/// operation takes longer then. An allocation that cannot be recorded fails: without memory for the
/// record, or in a program with blocks in more than 256 GiB of address space. A reallocation that
/// cannot be recorded succeeds, and its block counts as in use until the profiler ends, or not at all if
/// it is older than the profiler.
#[derive(Debug)]
pub struct Alloc;

/// The allocator without the counts of this module.
const INNER: Inner<System> = Inner::system();

static BLOCKS: Blocks = Blocks::new();
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

static TOTAL_BLOCKS: AtomicU64 = AtomicU64::new(0);
static TOTAL_BYTES: AtomicU64 = AtomicU64::new(0);
static CURR_BLOCKS: AtomicUsize = AtomicUsize::new(0);
static CURR_BYTES: AtomicUsize = AtomicUsize::new(0);
static MAX_BLOCKS: AtomicUsize = AtomicUsize::new(0);
static MAX_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the calling thread's allocations count.
#[inline]
fn is_counted() -> bool {
    IS_RUNNING.load(Ordering::Acquire) && !internal_scope::is_inside()
}

/// Counts an allocation, with the change of the bytes and the number of blocks in use.
#[inline]
fn count(size: usize, bytes: usize, blocks: usize) {
    TOTAL_BLOCKS.fetch_add(1, Ordering::Relaxed);
    TOTAL_BYTES.fetch_add(size as u64, Ordering::Relaxed);
    let blocks = CURR_BLOCKS
        .fetch_add(blocks, Ordering::Relaxed)
        .wrapping_add(blocks);
    // All changes have one order, in which each thread sees the result of its own: the maximum is exact.
    let bytes = CURR_BYTES
        .fetch_add(bytes, Ordering::Relaxed)
        .wrapping_add(bytes);
    if bytes >= MAX_BYTES.load(Ordering::Relaxed)
        && bytes >= MAX_BYTES.fetch_max(bytes, Ordering::Relaxed)
    {
        // The latest of equal peaks.
        MAX_BLOCKS.store(blocks, Ordering::Relaxed);
    }
}

/// Removes a block that the caller is about to free. Returns whether it counted.
#[inline]
fn forget(block: *mut u8, size: usize) -> bool {
    let is_known = IS_RUNNING.load(Ordering::Acquire) && BLOCKS.remove(block as usize);
    if is_known {
        CURR_BYTES.fetch_sub(size, Ordering::Relaxed);
        CURR_BLOCKS.fetch_sub(1, Ordering::Relaxed);
    }
    is_known
}

// SAFETY: all blocks are those of `INNER`, which meets the contract.
unsafe impl GlobalAlloc for Alloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` comes unchanged from the caller.
        unsafe { admit(INNER.alloc(layout), layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` comes unchanged from the caller.
        unsafe { admit(INNER.alloc_zeroed(layout), layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before another thread can receive the address.
        forget(block, layout.size());
        // SAFETY: block and layout come unchanged from the caller.
        unsafe { INNER.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_counted() {
            // SAFETY: all arguments come unchanged from the caller.
            return unsafe { INNER.realloc(block, layout, new_size) };
        }
        let is_known = BLOCKS.remove(block as usize);
        // SAFETY: all arguments come unchanged from the caller.
        let moved = unsafe { INNER.realloc(block, layout, new_size) };
        if moved.is_null() {
            if is_known {
                // The leaf exists: this cannot fail.
                BLOCKS.insert(block as usize);
            }
            return moved;
        }
        if is_known {
            // It was moved already, so it cannot be refused.
            BLOCKS.insert(moved as usize);
            count(new_size, new_size.wrapping_sub(layout.size()), 0);
        } else if BLOCKS.insert(moved as usize) {
            count(new_size, new_size, 1);
        }
        moved
    }
}

/// Counts a new block. Returns it, or null if it cannot be recorded.
///
/// # Safety
/// `INNER` returned `block` for `layout`, or null.
#[inline]
unsafe fn admit(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() || !is_counted() {
        return block;
    }
    if !BLOCKS.insert(block as usize) {
        // SAFETY: the block is new and unknown to the program.
        unsafe { INNER.dealloc(block, layout) };
        return std::ptr::null_mut();
    }
    count(layout.size(), layout.size(), 1);
    block
}

/// Begins to count, from zero. Returns `false` if the system has no memory for the record of blocks.
pub(super) fn start() -> bool {
    if !BLOCKS.open() {
        return false;
    }
    TOTAL_BLOCKS.store(0, Ordering::Relaxed);
    TOTAL_BYTES.store(0, Ordering::Relaxed);
    for count in [&CURR_BLOCKS, &CURR_BYTES, &MAX_BLOCKS, &MAX_BYTES] {
        count.store(0, Ordering::Relaxed);
    }
    IS_RUNNING.store(true, Ordering::Release);
    true
}

/// Stops to count, and leaves all counts.
pub(super) fn stop() {
    IS_RUNNING.store(false, Ordering::Release);
}

/// Returns the counts.
pub(super) fn stats() -> HeapStats {
    HeapStats {
        total_blocks: TOTAL_BLOCKS.load(Ordering::Relaxed),
        total_bytes: TOTAL_BYTES.load(Ordering::Relaxed),
        curr_blocks: CURR_BLOCKS.load(Ordering::Relaxed),
        curr_bytes: CURR_BYTES.load(Ordering::Relaxed),
        max_blocks: MAX_BLOCKS.load(Ordering::Relaxed),
        max_bytes: MAX_BYTES.load(Ordering::Relaxed),
    }
}
