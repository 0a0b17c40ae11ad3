//! Sets up the process, once, in the thread that makes the first allocation.

use std::ffi::c_void;
use std::sync::OnceLock;

use plimsoll_sys::os::filter;
use plimsoll_sys::os::region::Region;
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::primitives::{AtomicBool, AtomicU32, Ordering};

use super::{counts::HEAP, postmortem, sampled_blocks, sampled_inside::SAMPLED_INSIDE, thread};
use crate::settings;
use crate::{internal_heap, stack};

const CLOSED: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(CLOSED);

/// The address range of blocks outside the inner allocator: sampled blocks, then Plimsoll's
/// internal heap.
static RANGE: Region = Region::new();

/// Candidates for the address and length of the range: below every address that programs and
/// allocators use (position-independent programs, their heaps, and all mappings are far above), so
/// that one comparison decides. All but the first are for sanitizers and emulators, which reserve
/// the first.
const RANGE_PLACES: [(usize, usize); 4] = [
    (1 << if usize::BITS < 64 { 28 } else { 36 }, RANGE_BYTES),
    (1 << 24, 640 << 20),
    (1 << 24, 32 << 20),
    // Above a large program that valgrind loads from the first megabyte on.
    (40 << 20, 24 << 20),
];

/// Whether sampled blocks have slots in the range. A preloaded library leaves all of them in the underlying allocator.
const HAS_SLOTS: bool = !settings::IS_PRELOADED || cfg!(test);

/// Address space in bytes: four fifths for sampled blocks, if they have slots, and one fifth for Plimsoll's own heap.
const RANGE_BYTES: usize =
    (if HAS_SLOTS { 5 } else { 1 }) << if usize::BITS < 64 { 24 } else { 30 };

/// The least length of the range, in a limited address space.
const MIN_RANGE_BYTES: usize = 8 * sampled_blocks::SPAN;

/// The key whose destructor runs when a thread ends.
static EXIT_KEY: Key = Key::new();

/// The function that each thread calls at its first allocation.
static AT_FIRST_ALLOCATIONS: OnceLock<fn()> = OnceLock::new();

/// Registers a function for hooks that each thread calls at its first allocation from now on. A later call has no effect.
pub fn call_at_first_allocations(observer: fn()) {
    let _ = AT_FIRST_ALLOCATIONS.set(observer);
}

/// Reports the first allocation of the calling thread.
pub(super) fn note_thread() {
    if let Some(observer) = AT_FIRST_ALLOCATIONS.get() {
        observer();
    }
}

/// Sets the process up unless that is done. Returns false while another thread does so. Called from
/// hooks: does not allocate and takes no lock.
#[inline]
pub fn open() -> bool {
    STATE.load(Ordering::Acquire) == OPEN || set_up()
}

/// Notices filters that the program has inherited, once: before the first call that one may answer by ending the process.
/// Called before `main`, by one thread.
pub fn notice_filters() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        filter::notice_inherited(settings::known_filters());
    }
}

#[cold]
fn set_up() -> bool {
    match STATE.compare_exchange(CLOSED, OPENING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(state) => return state == OPEN,
    }
    notice_filters();
    let early = settings::early();
    crate::sampler::set_rate(early.heap_rate);
    stack::set_depth(early.stack_depth);
    let file = postmortem::open(early.table_bytes);
    let protocol = HEAP.open(early.protocol, file.as_ref().map(|parts| &parts.shards));
    postmortem::ledger_is_open(protocol);
    // If the range has to lie among the program's own mappings, or the program at a fixed address below
    // it, frees of blocks below it take one comparison more.
    let placed = RANGE_PLACES
        .iter()
        .any(|&(address, length)| RANGE.reserve_at(address, length));
    if placed || RANGE.reserve(RANGE_BYTES, MIN_RANGE_BYTES) {
        // Slots are aligned relative to their span.
        let base = RANGE.base().next_multiple_of(sampled_blocks::SPAN);
        let length = RANGE.base() + RANGE.length() - base;
        let mut sampled = 0;
        if HAS_SLOTS {
            sampled = length / 5 * 4 / sampled_blocks::SPAN * sampled_blocks::SPAN;
            sampled_blocks::open(base, sampled);
        }
        internal_heap::REGION.adopt(base + sampled, length - sampled);
    }
    // In this order: a limited address space has less for the last ones.
    stack::TABLE.open(early.table_bytes, file.map(|parts| parts.table));
    SAMPLED_INSIDE.open();
    EXIT_KEY.prepare(thread_ends);
    STATE.store(OPEN, Ordering::Release);
    // Not only in `startup`: an allocator maps memory for the loader before that.
    #[cfg(feature = "mmap")]
    crate::alloc::mappings::start();
    true
}

/// Gives address space back, before the program limits its own to `limit` bytes: Plimsoll keeps what it uses, 1 % of
/// the limit, and what a report needs. A limit that the process exceeds already gains nothing by it. Not for hooks.
pub fn before_address_space_limit(limit: usize) {
    /// The program and the C library need less, but not with the preloaded library.
    const MIN_LIMIT: usize = 32 << 20;
    if limit < MIN_LIMIT {
        return;
    }
    // The heap has the end of the range: nothing else lies behind it.
    RANGE.end_before(internal_heap::leave_address_space(limit));
    stack::TABLE.give_back(limit);
}

/// Returns the end of the address range of blocks outside the inner allocator, at least 1.
#[inline(always)]
pub(super) fn own_range_end() -> usize {
    (RANGE.base() + RANGE.length()).max(1)
}

/// Returns whether a block lies below that range, and is therefore the inner allocator's. False for
/// null.
#[inline(always)]
pub fn is_below_own_range(block: *const u8) -> bool {
    (block as usize).wrapping_sub(1) < RANGE.base().saturating_sub(1)
}

/// Returns whether a block lies outside that range, and is therefore the inner allocator's. False for
/// null.
#[inline(always)]
pub(super) fn is_beside_own_range(block: *const u8) -> bool {
    block as usize >= own_range_end() || is_below_own_range(block)
}

/// Makes the calling thread call [`thread_ends`] when it ends. Returns `false` if it will not.
pub(super) fn at_thread_exit() -> bool {
    // SAFETY: the value only has to differ from null.
    unsafe { EXIT_KEY.set(std::ptr::dangling::<c_void>()) }
}

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    thread::Thread::current().depart();
}
