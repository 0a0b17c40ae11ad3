//! The memory of the lists: for each slot, a list of each class.

use std::ops::Range;

use plimsoll_sys::os::region::Region;
use plimsoll_sys::primitives::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

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

/// Bytes of all slots.
const ALL_BYTES: usize = (SLOTS + 1) * SLOT_BYTES;

/// The memory of the slots.
pub(crate) struct Slots {
    open: Region,
    /// Slots that are never written to.
    closed: Region,
    /// Whether the memory is usable.
    exists: AtomicBool,
    /// The number of slots that may be in use.
    used: AtomicUsize,
}

pub(crate) static SLOTS_IN_USE: Slots = Slots {
    open: Region::new(),
    closed: Region::new(),
    exists: AtomicBool::new(false),
    used: AtomicUsize::new(0),
};

impl Slots {
    /// Reserves the memory and opens the slots in use. If the system refuses, all operations use the
    /// central lists.
    pub(crate) fn create(&self) {
        let reserved = [&self.open, &self.closed].into_iter().all(|region| {
            region.reserve_for_program(ALL_BYTES, ALL_BYTES)
                && region.commit_apart(CLOSED_SLOT as usize * SLOT_BYTES, SLOT_BYTES)
        });
        if reserved && self.commit(self.used.load(Ordering::Relaxed)) {
            self.exists.store(true, Ordering::Release);
            self.open();
        }
    }

    fn commit(&self, slots: usize) -> bool {
        self.open.commit(slots * SLOT_BYTES) && self.closed.commit(slots * SLOT_BYTES)
    }

    /// Returns the address of slot 0, open; 0 without memory.
    pub(crate) fn open_address(&self) -> usize {
        match self.exist() {
            true => self.open.base(),
            false => 0,
        }
    }

    /// Returns whether there are slots besides the closed one.
    pub(crate) fn exist(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    /// Returns whether the lists are open.
    pub(crate) fn are_open(&self) -> bool {
        CURRENT.load(Ordering::Relaxed).addr() == self.open_address()
    }

    /// Lets operations use the lists.
    pub(crate) fn open(&self) {
        if self.exist() {
            let open = std::ptr::with_exposed_provenance_mut(self.open.base());
            CURRENT.store(open, Ordering::Release);
        }
    }

    /// Sends operations that begin from now on to the central lists.
    pub(crate) fn close(&self) {
        if self.exist() {
            let closed = std::ptr::with_exposed_provenance_mut(self.closed.base());
            CURRENT.store(closed, Ordering::SeqCst);
        }
    }

    /// Makes the slots up to `slot` usable. Returns `false` if memory is lacking.
    pub(crate) fn use_slot(&self, slot: usize) -> bool {
        if self.exist() && !self.commit(slot + 1) {
            return false;
        }
        self.used.fetch_max(slot + 1, Ordering::Release);
        true
    }

    /// Returns the numbers of the slots that may have been used.
    pub(crate) fn used(&self) -> Range<usize> {
        match self.exist() {
            true => 0..self.used.load(Ordering::Acquire),
            false => 0..0,
        }
    }

    /// Returns a list.
    pub(crate) fn head(&self, slot: usize, class: usize) -> &Head {
        let address = self.open.base() + slot * SLOT_BYTES + offset_of(class);
        // SAFETY: the slot is in use, so the list lies in committed memory, which is zero at first: a
        // valid `Head`.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// Returns the ranges of the open and of the closed slots.
    pub(crate) fn memory(&self) -> [Range<usize>; 2] {
        [&self.open, &self.closed].map(|region| region.base()..region.base() + region.committed())
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
