//! Plimsoll's own heap, separate from the program's.
//!
//! Memory that Plimsoll allocates for itself (to read symbols, write profiles, answer requests)
//! is not the program's. Within a [scope](crate::internal_scope::scope), the allocations of the
//! thread come from a separate reservation; a free recognizes them by address. So they are in none
//! of the program's statistics and profiles. When the work is done, the memory returns to the
//! system.

use std::alloc::Layout;
use std::cell::UnsafeCell;

use dlmalloc::Dlmalloc;

use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::{Table, join};
use plimsoll_sys::os::pages;
use plimsoll_sys::os::region::{self, Region};
use plimsoll_sys::primitives::{AtomicBool, AtomicUsize, Backoff, Ordering, observed};

use crate::fork::Order;

/// The address range of the heap: a part of the reservation that the allocator recognizes by
/// address.
pub static REGION: Region = Region::new();

/// Returns whether an address lies in the range of this heap.
#[inline]
pub fn contains(address: usize) -> bool {
    REGION.contains(address)
}

/// Returns the bytes that the heap currently has from the system.
pub fn bytes() -> usize {
    HEAP.system_bytes.load(Ordering::Relaxed)
}

/// Allocates a block. Returns null if the heap is full, or if this thread is already inside the
/// heap, in a signal handler.
pub fn alloc(layout: Layout, zeroed: bool) -> *mut u8 {
    HEAP.with(std::ptr::null_mut(), |heap| {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: size and alignment come from a layout; the lock is held.
        unsafe {
            if zeroed {
                heap.calloc(size, align)
            } else {
                heap.malloc(size, align)
            }
        }
    })
}

/// Frees what [`alloc`] or [`realloc`] returned.
///
/// # Safety
/// As for `GlobalAlloc::dealloc`.
pub unsafe fn free(pointer: *mut u8, layout: Layout) {
    // A free by a signal handler that interrupted the heap on this thread is ignored: the block is
    // lost, not corrupted.
    if HEAP.is_abandoned(pointer) {
        return;
    }
    // SAFETY: the heap made the block, by this function's contract.
    HEAP.with((), |heap| unsafe {
        heap.free(pointer, layout.size(), layout.align())
    });
}

/// Grows or shrinks a block of [`alloc`]. Returns null on failure, and leaves the block unchanged.
///
/// # Safety
/// As for `GlobalAlloc::realloc`.
pub unsafe fn realloc(pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    let is_abandoned = HEAP.is_abandoned(pointer);
    HEAP.with(std::ptr::null_mut(), |heap| {
        if is_abandoned {
            // SAFETY: the lock is held, and the new block is not the old one.
            return unsafe {
                let block = heap.malloc(new_size, layout.align());
                if !block.is_null() {
                    pointer.copy_to_nonoverlapping(block, layout.size().min(new_size));
                }
                block
            };
        }
        // SAFETY: the heap made the block, by this function's contract; the lock is held.
        unsafe { heap.realloc(pointer, layout.size(), layout.align(), new_size) }
    })
}

/// Returns unused memory to the system.
pub fn trim() {
    // SAFETY: the lock is held.
    HEAP.with((), |heap| unsafe {
        heap.trim(0);
    });
}

/// Makes the next `bytes` of the heap's range accessible, without using them: for a time when that is impossible.
/// Returns false if the heap cannot have so much.
pub fn commit_ahead(bytes: usize) -> bool {
    let end = HEAP.top.load(Ordering::Relaxed) + bytes;
    REGION.commit(end.min(REGION.length())) && end <= REGION.length()
}

/// Gives address space back that a limit of `limit` bytes would count, except for what a report needs. Returns the heap's
/// end.
pub fn leave_address_space(limit: usize) -> usize {
    /// A process at the limit of its mappings can have no memory but this.
    const FOR_A_REPORT: std::ops::RangeInclusive<usize> = 4 << 20..=16 << 20;
    let kept = (limit / 16).clamp(*FOR_A_REPORT.start(), *FOR_A_REPORT.end());
    let more = region::part_of_limit(limit).max(kept);
    // With the lock, no block lies beyond the committed bytes, and none is made meanwhile.
    let length = HEAP.with(REGION.length(), |_| REGION.give_back(more));
    REGION.base() + length
}

/// Returns whether `bytes` can be allocated for Plimsoll: by its heap, or by the program's, to which requests go
/// that this one cannot serve. Rust ends a process that has no memory for a request.
pub fn has_room(bytes: usize) -> bool {
    let is_mappable = || {
        let free = pages::reserve(bytes, 0);
        if let Some(free) = free {
            // SAFETY: the range was just reserved, and nothing uses it.
            unsafe { pages::unmap(free, bytes) };
        }
        free.is_some()
    };
    commit_ahead(bytes) || is_mappable()
}

/// Lets forks wait until no thread is inside the heap. Not for hooks.
pub fn prepare() {
    join(&FORK);
}

static FORK: Table = Table {
    hold,
    release,
    ..Table::new(Order::InternalHeap.rank(), after_fork_in_child)
};

/// Whether the thread that forks holds the lock for the fork.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// How long a fork waits for a thread inside the heap, in nanoseconds. A signal handler may have interrupted that
/// thread, and may wait for this fork in order to make its own.
const PATIENCE: u64 = 10_000_000;

/// Waits until no thread is inside the heap, and blocks others. Not if the forking thread itself is inside: a signal
/// handler that interrupted it forks.
fn hold() {
    let mut is_held = HEAP.try_lock();
    if !is_held && !HEAP.is_own() {
        let began = clock::now();
        let mut backoff = Backoff::new();
        while !is_held && clock::now().saturating_sub(began) < PATIENCE {
            backoff.wait();
            is_held = HEAP.try_lock();
        }
    }
    IS_HELD.store(is_held, Ordering::Relaxed);
}

fn release() {
    if IS_HELD.load(Ordering::Relaxed) {
        HEAP.unlock();
    }
}

/// Begins a new heap in the child if a thread that it does not have was inside. The old heap's memory is kept.
fn after_fork_in_child() {
    if IS_HELD.load(Ordering::Relaxed) || HEAP.is_own() {
        return;
    }
    let floor = REGION.committed();
    // SAFETY: no thread is inside; blocks below the floor no longer get there.
    unsafe { *HEAP.heap.get() = Dlmalloc::new_with_allocator(Pages) };
    HEAP.top.store(floor, Ordering::Relaxed);
    HEAP.floor.store(REGION.base() + floor, Ordering::Relaxed);
    HEAP.owner.store(0, Ordering::Relaxed);
}

static HEAP: Heap = Heap {
    owner: AtomicUsize::new(0),
    heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)),
    floor: AtomicUsize::new(0),
    top: AtomicUsize::new(0),
    system_bytes: AtomicUsize::new(0),
};

struct Heap {
    /// The thread pointer of the thread inside; 0 for none.
    owner: AtomicUsize,
    heap: UnsafeCell<Dlmalloc<Pages>>,
    /// Blocks below this address are of a heap that a fork has abandoned. They are not freed.
    floor: AtomicUsize,
    /// Bytes of the reservation that the heap has taken, from the bottom.
    top: AtomicUsize,
    system_bytes: AtomicUsize,
}

// SAFETY: `heap` is used only under the lock; the rest is atomic.
unsafe impl Sync for Heap {}

impl Heap {
    fn with<R>(&self, refused: R, work: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> R {
        // The lock knows its owner: a signal handler on the owner's thread must not wait for it.
        if self.is_own() {
            return refused;
        }
        self.lock();
        // SAFETY: the lock is held, so no other thread uses the heap.
        let result = work(unsafe { &mut *self.heap.get() });
        self.unlock();
        result
    }

    /// Returns whether this thread is inside the heap.
    fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == plimsoll_sys::os::thread_pointer()
    }

    fn is_abandoned(&self, block: *mut u8) -> bool {
        (block as usize) < self.floor.load(Ordering::Relaxed)
    }

    fn lock(&self) {
        if !self.try_lock() {
            self.lock_cold();
        }
    }

    fn try_lock(&self) -> bool {
        let me = plimsoll_sys::os::thread_pointer();
        self.owner
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits for the lock, and reports the wait as Plimsoll's own. Reporting does not allocate.
    #[cold]
    #[inline(never)]
    fn lock_cold(&self) {
        observed(&mut || {
            let mut backoff = Backoff::new();
            while !self.try_lock() {
                backoff.wait();
            }
        });
    }

    fn unlock(&self) {
        self.owner.store(0, Ordering::Release);
    }
}

/// Provides the heap's pages, as one growing piece.
struct Pages;

/// Pages are requested in steps of this size, so that segments are few.
const STEP: usize = 256 * 1024;

// SAFETY: the pages returned are committed, disjoint, and stay mapped until they are given back.
// All calls come from within the heap, under its lock.
unsafe impl dlmalloc::Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(STEP);
        let top = HEAP.top.load(Ordering::Relaxed);
        if !REGION.commit(top.saturating_add(size)) {
            return (std::ptr::null_mut(), 0, 0);
        }
        HEAP.top.store(top + size, Ordering::Relaxed);
        HEAP.system_bytes.fetch_add(size, Ordering::Relaxed);
        ((REGION.base() + top) as *mut u8, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, segment: *mut u8, old_size: usize, new_size: usize) -> bool {
        give_back(segment as usize + new_size, old_size - new_size)
    }

    fn free(&self, segment: *mut u8, size: usize) -> bool {
        give_back(segment as usize, size)
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        // The system drops the contents of returned pages; they are zero when they are used again.
        true
    }

    fn page_size(&self) -> usize {
        region::page_size()
    }
}

/// Returns pages to the system if they are the last ones taken; otherwise the heap keeps them for
/// reuse.
fn give_back(from: usize, size: usize) -> bool {
    let top = HEAP.top.load(Ordering::Relaxed);
    if from + size != REGION.base() + top {
        return false;
    }
    // SAFETY: the pages are the heap's, which no longer needs their contents.
    if !unsafe { region::discard(from, size) } {
        return false;
    }
    HEAP.top.store(top - size, Ordering::Relaxed);
    HEAP.system_bytes.fetch_sub(size, Ordering::Relaxed);
    true
}
