//! Setting the process up, once, by whoever allocates first.

use std::ffi::c_void;

use super::{counts::HEAP, sampled_blocks, sampled_large::SAMPLED_LARGE, thread};
use crate::os::region::Region;
use crate::primitives::{AtomicU32, Ordering};
use crate::settings;
use crate::{own, postmortem, stack};

const CLOSED: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(CLOSED);

/// The address range of blocks that are not the inner allocator's: sampled ones, then Plimsoll's
/// own.
static RANGE: Region = Region::new();

/// Where the range may lie, and how long it is: below every address that programs and allocators
/// use (position-independent programs, their heaps, and all mappings are far above), so that one
/// comparison tells. The other places are for sanitizers and emulators, which keep the first for
/// themselves.
const RANGE_PLACES: [(usize, usize); 4] = [
    (1 << 36, RANGE_BYTES),
    (1 << 24, 640 << 20),
    (1 << 24, 32 << 20),
    // Above a large program that valgrind loads from the first megabyte on.
    (40 << 20, 24 << 20),
];

/// Address space for sampled blocks and Plimsoll's own heap, in bytes: four fifths and one.
const RANGE_BYTES: usize = 5 << 30;

/// The key whose destructor runs when a thread ends; 1 more than its number, 0 if there is none.
static EXIT_KEY: AtomicU32 = AtomicU32::new(0);

/// Sets the process up if nobody has. False while another thread is at it. Called from hooks: it
/// allocates nothing and takes no lock.
#[inline]
pub(crate) fn open() -> bool {
    STATE.load(Ordering::Acquire) == OPEN || set_up()
}

#[cold]
fn set_up() -> bool {
    match STATE.compare_exchange(CLOSED, OPENING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(state) => return state == OPEN,
    }
    let early = settings::early();
    crate::sampler::set_rate(early.heap_rate);
    stack::set_depth(early.stack_depth);
    let file = postmortem::open(early.table_bytes);
    let protocol = HEAP.open(early.protocol, file.as_ref().map(|parts| &parts.shards));
    postmortem::ledger_is_open(protocol);
    // If it has to lie among the program's own mappings, frees of what is below it go the slow way:
    // right, but not as fast.
    let placed = RANGE_PLACES
        .iter()
        .any(|&(address, length)| RANGE.reserve_at(address, length));
    if placed || RANGE.reserve(RANGE_BYTES, 1 << 24) {
        // Blocks are aligned as far as spans are.
        let base = RANGE.base().next_multiple_of(sampled_blocks::SPAN);
        let length = RANGE.base() + RANGE.length() - base;
        let sampled = length / 5 * 4 / sampled_blocks::SPAN * sampled_blocks::SPAN;
        sampled_blocks::open(base, sampled);
        own::REGION.adopt(base + sampled, length - sampled);
    }
    SAMPLED_LARGE.open();
    stack::TABLE.open(early.table_bytes, file.map(|parts| parts.table));
    let mut key = 0;
    // SAFETY: the destructor is a function of the right type that lives as long as the program.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        EXIT_KEY.store(key + 1, Ordering::Relaxed);
    }
    STATE.store(OPEN, Ordering::Release);
    // Not only before `main`: what an allocator maps for the loader comes earlier.
    #[cfg(feature = "mmap")]
    crate::hook::mappings::start();
    true
}

/// The first address after the range of blocks that are not the inner allocator's, and after null.
pub(super) fn own_range_end() -> usize {
    (RANGE.base() + RANGE.length()).max(1)
}

/// Has [`thread_ends`] called when the calling thread ends.
pub(super) fn at_thread_exit() {
    if let Some(key) = EXIT_KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key exists; the value only has to differ from null.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<c_void>()) };
    }
}

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    thread::Thread::current().depart();
}
