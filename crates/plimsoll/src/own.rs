//! Plimsoll's own heap, apart from the program's.
//!
//! What this crate allocates for itself (to read symbols, to write profiles, to answer requests) is
//! not the program's memory. Within a [`scope`], the allocations of the thread come from a
//! reservation of their own; a free finds out by the address. So they are in none of the program's
//! statistics and profiles, and when the work is done, the memory goes back to the system.

use std::alloc::Layout;
use std::cell::UnsafeCell;

use dlmalloc::Dlmalloc;

use crate::alloc::thread;
use crate::contention::{WaitKind, own};
use crate::os::region::{PAGE, Region};
use crate::os::syscall::call3;
use crate::primitives::{AtomicUsize, Ordering};
use crate::stack::{Registers, Start};

/// Where the heap lives: a part of the reservation that the allocator recognises by address.
pub(crate) static REGION: Region = Region::new();

/// While it lives, what this thread allocates is Plimsoll's own. Scopes nest.
///
/// It ends where user code is called: what that allocates is the program's.
pub(crate) struct Scope(());

/// Opens a [`Scope`]. Not for hooks.
pub(crate) fn scope() -> Scope {
    thread::enter_own_scope();
    Scope(())
}

impl Drop for Scope {
    fn drop(&mut self) {
        thread::leave_own_scope();
    }
}

#[inline]
pub(crate) fn contains(address: usize) -> bool {
    REGION.contains(address)
}

/// Bytes that the heap has from the system now.
pub(crate) fn bytes() -> usize {
    HEAP.system_bytes.load(Ordering::Relaxed)
}

/// Allocates; null if there is no room, or if this thread is inside the heap already, in a signal
/// handler.
pub(crate) fn alloc(layout: Layout, zeroed: bool) -> *mut u8 {
    HEAP.with(std::ptr::null_mut(), |heap| {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: sizes and alignments are those of a layout; the lock is held.
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
pub(crate) unsafe fn free(pointer: *mut u8, layout: Layout) {
    // If a signal handler frees what the code below it is about to use, it is lost rather than
    // corrupted. SAFETY: the caller's; the lock is held.
    HEAP.with((), |heap| unsafe {
        heap.free(pointer, layout.size(), layout.align())
    });
}

/// Grows or shrinks what [`alloc`] returned; null leaves it as it is.
///
/// # Safety
/// As for `GlobalAlloc::realloc`.
pub(crate) unsafe fn realloc(pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    HEAP.with(std::ptr::null_mut(), |heap| {
        // SAFETY: the caller's; the lock is held.
        unsafe { heap.realloc(pointer, layout.size(), layout.align(), new_size) }
    })
}

/// Gives unused memory back to the system.
pub(crate) fn trim() {
    // SAFETY: the lock is held.
    HEAP.with((), |heap| unsafe {
        heap.trim(0);
    });
}

/// Waits until no thread is inside the heap and keeps others out: for a fork. To be undone by
/// [`unlock`].
pub(crate) fn lock() {
    HEAP.lock();
}

pub(crate) fn unlock() {
    HEAP.unlock();
}

static HEAP: Heap = Heap {
    owner: AtomicUsize::new(0),
    heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)),
    top: AtomicUsize::new(0),
    system_bytes: AtomicUsize::new(0),
};

struct Heap {
    /// The thread pointer of whoever is inside; 0 if nobody is.
    owner: AtomicUsize,
    heap: UnsafeCell<Dlmalloc<Pages>>,
    /// Bytes of the reservation that were handed out, from the bottom.
    top: AtomicUsize,
    system_bytes: AtomicUsize,
}

// SAFETY: `heap` is used under the lock; the rest is atomic.
unsafe impl Sync for Heap {}

impl Heap {
    fn with<R>(&self, refused: R, work: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> R {
        // A lock that knows its owner: a signal handler on the owner's thread must not wait for it.
        if self.owner.load(Ordering::Relaxed) == crate::os::thread_pointer() {
            return refused;
        }
        self.lock();
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.heap.get() });
        self.unlock();
        result
    }

    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slowly();
        }
    }

    fn try_lock(&self) -> bool {
        let me = crate::os::thread_pointer();
        self.owner
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits, and reports the wait as Plimsoll's own. Reporting does not allocate.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) {
        let wait = own::Wait::begin(WaitKind::Mutex);
        let mut backoff = crate::primitives::Backoff::new();
        while !self.try_lock() {
            backoff.wait();
        }
        wait.end(Start::Here(Registers::here()));
    }

    fn unlock(&self) {
        self.owner.store(0, Ordering::Release);
    }
}

/// Hands the heap its pages, in one growing piece.
struct Pages;

/// Pages are asked for in steps of this, so that segments are few.
const STEP: usize = 256 * 1024;

// SAFETY: what is handed out is committed, disjoint, and stays mapped until it is given back. All
// calls come from within the heap, under its lock.
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
        // What was given back is dropped by the system and comes anew.
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// Takes pages back if they are the last ones handed out; otherwise the heap keeps them for reuse.
fn give_back(from: usize, size: usize) -> bool {
    let top = HEAP.top.load(Ordering::Relaxed);
    if from + size != REGION.base() + top {
        return false;
    }
    // SAFETY: the pages are the heap's, which has no more use for what is in them.
    if unsafe { call3(libc::SYS_madvise, from, size, libc::MADV_DONTNEED as usize) } != 0 {
        return false;
    }
    HEAP.top.store(top - size, Ordering::Relaxed);
    HEAP.system_bytes.fetch_sub(size, Ordering::Relaxed);
    true
}
