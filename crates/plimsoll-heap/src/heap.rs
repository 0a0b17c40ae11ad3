//! The heap of the process: the cold paths of small blocks, large blocks, start and fork.

use plimsoll_sys::os::atfork;
use plimsoll_sys::primitives::{AtomicU32, Backoff, Ordering};

use crate::central::{BATCH, Central, MAX_BATCH};
use crate::counted_lock::{CountedLock, Epoch};
use crate::invalid;
use crate::lists::arch::{self, Batch};
use crate::lists::areas::{self, AREAS, Kind};
use crate::lists::slots::{self, SLOTS_IN_USE};
use crate::pages::{Id, PageHeap, Use, count};
use crate::size_class::{CLASSES, PAGE};

pub(crate) static EPOCH: Epoch = Epoch::new();
pub(crate) static CENTRAL: Central = Central::new();
pub(crate) static PAGES: PageHeap = PageHeap::new();

/// Held by the reader of a snapshot.
pub(crate) static READER: CountedLock<(), 0> = CountedLock::new(());

/// The start of the heap: not begun, begun, failed or done.
static STARTED: AtomicU32 = AtomicU32::new(NOT_BEGUN);
const NOT_BEGUN: u32 = 0;
const BEGUN: u32 = 1;
const FAILED: u32 = 2;
const DONE: u32 = 3;

/// Starts the heap, once. Returns whether it works: not if the system refuses address space.
pub(crate) fn start() -> bool {
    let mut backoff = Backoff::new();
    loop {
        match STARTED.load(Ordering::Acquire) {
            DONE => return true,
            FAILED => return false,
            NOT_BEGUN => {
                let begun = STARTED.compare_exchange(
                    NOT_BEGUN,
                    BEGUN,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if begun.is_ok() {
                    break;
                }
            }
            _ => backoff.wait(),
        }
    }
    let works = PAGES.reserve(&EPOCH);
    if works && AREAS.prepare() != Kind::None {
        SLOTS_IN_USE.create();
    }
    STARTED.store(if works { DONE } else { FAILED }, Ordering::Release);
    if works {
        atfork::register(before_fork, after_fork_in_parent, after_fork_in_child);
    }
    works
}

/// Returns whether the heap has been started.
pub(crate) fn is_started() -> bool {
    STARTED.load(Ordering::Acquire) == DONE
}

/// Allocates a small block whose list, at `offset` in a slot, is empty or closed. Returns null if memory is
/// lacking.
#[cold]
#[inline(never)]
pub(crate) fn alloc_cold(offset: usize) -> *mut u8 {
    if !start() {
        return std::ptr::null_mut();
    }
    let class = slots::class_at(offset);
    if areas::attach() {
        // SAFETY: the area is the thread's, and the offset leads to the class's list.
        let block = unsafe { arch::pop(areas::area(), offset) };
        if !block.is_null() {
            return block;
        }
    }
    let mut blocks = [0; MAX_BATCH];
    if SLOTS_IN_USE.are_open() {
        let length = usize::from(BATCH[class]);
        let taken = CENTRAL.take(&PAGES, &EPOCH, class, &mut blocks[..length], false);
        if taken > 0 {
            let batch = batch_of(class, &mut blocks[..taken]);
            // SAFETY: the area is the thread's, and the blocks are free and of the class.
            if !unsafe { arch::fill(areas::area(), &batch) } {
                CENTRAL.give(&PAGES, &EPOCH, class, &blocks[..taken], false);
            }
            // SAFETY: the area is the thread's, and the offset leads to the class's list.
            let block = unsafe { arch::pop(areas::area(), offset) };
            if !block.is_null() {
                return block;
            }
        }
    }
    match CENTRAL.take(&PAGES, &EPOCH, class, &mut blocks[..1], true) {
        0 => std::ptr::null_mut(),
        _ => std::ptr::with_exposed_provenance_mut(blocks[0]),
    }
}

/// Frees a small block whose list, at `offset` in a slot, is full or closed.
#[cold]
#[inline(never)]
pub(crate) fn dealloc_cold(block: *mut u8, offset: usize) {
    let class = slots::class_at(offset);
    // SAFETY: the area is the thread's, the offset leads to the class's list, and the block is free.
    let push = || unsafe { arch::push(areas::area(), offset, block) };
    if areas::attach() && push() {
        return;
    }
    let mut blocks = [0; MAX_BATCH];
    if SLOTS_IN_USE.are_open() {
        let blocks = &mut blocks[..usize::from(BATCH[class])];
        let batch = batch_of(class, blocks);
        // SAFETY: the area is the thread's.
        unsafe { arch::grow(areas::area(), &batch) };
        if push() {
            return;
        }
        // SAFETY: the area is the thread's, and the batch's blocks are writable.
        if unsafe { arch::drain(areas::area(), &batch) } {
            CENTRAL.give(&PAGES, &EPOCH, class, blocks, false);
            if push() {
                return;
            }
        }
    }
    let block = block.expose_provenance();
    CENTRAL.give(&PAGES, &EPOCH, class, &[block], true);
}

/// Returns `blocks` as a batch for the list of a class.
fn batch_of(class: usize, blocks: &mut [usize]) -> Batch {
    Batch {
        open: SLOTS_IN_USE.open_address(),
        offset: slots::offset_of(class),
        blocks: blocks.as_mut_ptr(),
        length: blocks.len(),
        capacity: slots::capacity(class),
    }
}

/// Allocates a large block, or one with a large alignment. Returns null if memory is lacking. The
/// second value is true if all bytes are zero.
#[cold]
#[inline(never)]
pub(crate) fn alloc_large(size: usize, align: usize) -> (*mut u8, bool) {
    let none = (std::ptr::null_mut(), false);
    let (Some(pages), Ok(align)) = (pages_of(size), u32::try_from(align.div_ceil(PAGE))) else {
        return none;
    };
    if !start() {
        return none;
    }
    let mut owner = PAGES.lock(&EPOCH);
    let Some(id) = PAGES.take(&mut owner, pages, align, Use::Large) else {
        return none;
    };
    owner.add(count::LARGE_ALLOCATED, 1);
    owner.add(count::LARGE_ALLOCATED_BYTES, size as u64);
    let spans = PAGES.spans();
    let address = PAGES.address(spans[id].first);
    let is_zero = spans[id].is_zero;
    (std::ptr::with_exposed_provenance_mut(address), is_zero)
}

/// Frees a block of [`alloc_large`] with its size.
#[cold]
#[inline(never)]
pub(crate) fn dealloc_large(block: *mut u8, size: usize) {
    let mut owner = PAGES.lock(&EPOCH);
    let id = large_at(block);
    owner.add(count::LARGE_FREED, 1);
    owner.add(count::LARGE_FREED_BYTES, size as u64);
    PAGES.give(&mut owner, id);
}

/// Changes the size of a large block where it is. Returns `false` if the pages behind it do not suffice.
pub(crate) fn resize_large(block: *mut u8, size: usize, new_size: usize) -> bool {
    let Some(pages) = pages_of(new_size) else {
        return false;
    };
    let mut owner = PAGES.lock(&EPOCH);
    let id = large_at(block);
    let old = PAGES.spans()[id].pages;
    if pages > old && !PAGES.extend(&mut owner, id, pages) {
        return false;
    }
    if pages < old {
        PAGES.shrink(&mut owner, id, pages);
    }
    // One block is freed, and another one allocated.
    owner.add(count::LARGE_FREED, 1);
    owner.add(count::LARGE_FREED_BYTES, size as u64);
    owner.add(count::LARGE_ALLOCATED, 1);
    owner.add(count::LARGE_ALLOCATED_BYTES, new_size as u64);
    true
}

/// Returns the run of a large block. The caller owns the lock of the page heap.
fn large_at(block: *mut u8) -> Id {
    let address = block.expose_provenance();
    let found = PAGES.run_at(address).filter(|&id| {
        let spans = PAGES.spans();
        spans[id].state == Use::Large && PAGES.address(spans[id].first) == address
    });
    found.unwrap_or_else(|| invalid::free(address, "not a large block"))
}

/// Returns the memory of all free pages to the system, in parts between which others take the lock.
pub(crate) fn release_idle() {
    while is_started() && PAGES.release_some(&mut PAGES.lock(&EPOCH)) {}
}

fn pages_of(size: usize) -> Option<u32> {
    // The page heap has 2^27 pages at most.
    u32::try_from(size.div_ceil(PAGE)).ok()
}

/// Acquires all locks, in their order, so that the child finds everything consistent.
extern "C" fn before_fork() {
    READER.acquire(&EPOCH);
    AREAS.acquire_lock();
    for class in 1..CLASSES {
        CENTRAL.counted_lock(class).acquire(&EPOCH);
    }
    PAGES.counted_lock().acquire(&EPOCH);
}

extern "C" fn after_fork_in_parent() {
    release_all();
}

extern "C" fn after_fork_in_child() {
    areas::clear_after_fork();
    release_all();
}

fn release_all() {
    // SAFETY: `before_fork` acquired each lock, in this thread or in its parent's.
    unsafe {
        PAGES.counted_lock().release();
        for class in 1..CLASSES {
            CENTRAL.counted_lock(class).release();
        }
        AREAS.release_lock();
        READER.release();
    }
}
