//! The memory of the lists: for each slot, a list of each class.

use std::ops::Range;

use plimsoll_sys::os::region;
use plimsoll_sys::primitives::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::list::Head;
use crate::size_class::{BY_8, CLASSES, LARGEST_STEP, SIZES};

/// Bytes of a slot. `arch` has this number in its instructions.
pub(super) const SLOT_BYTES: usize = 1 << 16;

/// The number of slots besides the one that is always closed. More processors or threads than these
/// use the central lists.
pub(crate) const SLOTS: usize = 16 * 1024 - 1;

/// The number of the slot that is always closed, for threads that have none.
pub(super) const CLOSED_SLOT: u32 = SLOTS as u32;

/// The maximum number of blocks of each list: [`LIST_BYTES`] of them.
const CAPACITY: [u16; CLASSES] = {
    let mut capacity = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let blocks = LIST_BYTES / SIZES[class] as usize;
        capacity[class] = if blocks > MAX_CAPACITY {
            MAX_CAPACITY as u16
        } else if blocks < 4 {
            4
        } else {
            blocks as u16
        };
        class += 1;
    }
    capacity
};

const LIST_BYTES: usize = 64 * 1024;
/// The maximum number of blocks of any list.
pub(super) const MAX_CAPACITY: usize = 240;

/// Where the list of each class begins in a slot; at the end, the bytes in use.
const OFFSETS: [u32; CLASSES + 1] = {
    let mut offsets = [0; CLASSES + 1];
    let mut class = 1;
    while class < CLASSES {
        let bytes = size_of::<Head>() + CAPACITY[class] as usize * size_of::<usize>();
        offsets[class + 1] = offsets[class] + bytes as u32;
        class += 1;
    }
    offsets
};

// Behind the last list, a slot has the places of a list of the maximum capacity.
const _: () = assert!(OFFSETS[CLASSES] as usize + 8 * MAX_CAPACITY <= SLOT_BYTES);

/// The offsets by the size in steps of 8 bytes, rounded up.
static OFFSETS_BY_8: [u32; BY_8.len()] = {
    let mut offsets = [0; BY_8.len()];
    let mut at = 0;
    while at < offsets.len() {
        offsets[at] = OFFSETS[BY_8[at] as usize];
        at += 1;
    }
    offsets
};

/// Returns where a slot has the list for blocks of `size` bytes, at most [`LARGEST_STEP`].
#[inline(always)]
#[allow(clippy::manual_div_ceil, reason = "`div_ceil` takes more instructions")]
pub(crate) fn offset_by_step(size: usize) -> usize {
    debug_assert!(size <= LARGEST_STEP);
    // SAFETY: the table has an entry for each size up to `LARGEST_STEP`.
    unsafe { *OFFSETS_BY_8.get_unchecked((size + 7) / 8) as usize }
}

/// Returns the class whose list a slot has at `offset`.
pub(crate) fn class_at(offset: usize) -> usize {
    OFFSETS[..CLASSES].partition_point(|&start| (start as usize) <= offset) - 1
}

/// Returns where a slot has the list of a class.
pub(crate) fn offset_of(class: usize) -> usize {
    OFFSETS[class] as usize
}

/// A slot that is closed, for the time before there is memory.
#[repr(C, align(64))]
struct ClosedSlot([AtomicU64; SLOT_BYTES / 8]);

static BEFORE: ClosedSlot = ClosedSlot([const { AtomicU64::new(0) }; SLOT_BYTES / 8]);

/// The address of slot 0: of the open or of the closed slots.
pub(super) static CURRENT: AtomicPtr<u8> = AtomicPtr::new(
    // The closed slot of this address is `BEFORE`.
    (&raw const BEFORE)
        .cast::<u8>()
        .cast_mut()
        .wrapping_sub(SLOT_BYTES * SLOTS),
);

/// Bytes of the open slots, and of the closed ones.
const HALF: usize = (SLOTS + 1) * SLOT_BYTES;

/// The memory of the slots: the open ones, then the closed ones, which are never written to.
pub(crate) struct Slots {
    memory: AtomicUsize,
    /// The number of slots that may be in use.
    used: AtomicUsize,
}

pub(crate) static SLOTS_IN_USE: Slots = Slots {
    memory: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
};

impl Slots {
    /// Reserves the memory and opens the slots. If the system refuses, all operations use the central
    /// lists.
    pub(crate) fn create(&self) {
        if let Some(memory) = region::map(2 * HALF) {
            self.memory.store(memory, Ordering::Release);
            self.open();
        }
    }

    /// Returns the address of slot 0, open; 0 without memory.
    pub(crate) fn open_address(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Returns whether the lists are open.
    pub(crate) fn are_open(&self) -> bool {
        CURRENT.load(Ordering::Relaxed).addr() == self.open_address()
    }

    /// Lets operations use the lists.
    pub(crate) fn open(&self) {
        let memory = self.open_address();
        if memory != 0 {
            CURRENT.store(
                std::ptr::with_exposed_provenance_mut(memory),
                Ordering::Release,
            );
        }
    }

    /// Sends operations that begin from now on to the central lists.
    pub(crate) fn close(&self) {
        let memory = self.open_address();
        if memory != 0 {
            let closed = std::ptr::with_exposed_provenance_mut(memory + HALF);
            CURRENT.store(closed, Ordering::SeqCst);
        }
    }

    /// Records that slots up to `slot` may be in use.
    pub(crate) fn use_slot(&self, slot: usize) {
        self.used.fetch_max(slot + 1, Ordering::Release);
    }

    /// Returns the numbers of the slots that may have been used.
    pub(crate) fn used(&self) -> Range<usize> {
        0..self.used.load(Ordering::Acquire)
    }

    /// Returns a list.
    pub(crate) fn head(&self, slot: usize, class: usize) -> &Head {
        let memory = self.memory.load(Ordering::Relaxed);
        let address = memory + slot * SLOT_BYTES + offset_of(class);
        // SAFETY: the slot is below `SLOTS`, so the list lies in the mapped memory, which is zero at
        // first: a valid `Head`.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// Returns the bytes of the slots in use.
    pub(crate) fn bytes(&self) -> usize {
        self.used().len() * SLOT_BYTES
    }
}

/// Returns the maximum number of blocks of a list of a class.
pub(crate) fn capacity(class: usize) -> usize {
    usize::from(CAPACITY[class])
}
