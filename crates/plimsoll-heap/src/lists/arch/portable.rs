//! Every other processor and system: the slots of threads, in ordinary Rust.

use std::slice;

use plimsoll_sys::os::rseq::Area;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::super::list::{Head, announced};
use super::super::slots::{CURRENT, MAX_CAPACITY, SLOT_BYTES};
use super::Batch;

/// See the module documentation of `arch`.
pub(crate) const HAS_SEQUENCES: bool = false;

/// Calls `operate` with the list of the current slot, while the area announces an operation.
///
/// # Safety
/// `area` is the calling thread's, and a list begins at `offset` in each slot.
unsafe fn on_list<T>(
    area: *mut Area,
    offset: usize,
    operate: impl FnOnce(&Head, &[AtomicU64], usize) -> T,
) -> T {
    // SAFETY: areas live for good, and only their threads and readers use them, as atomics. The slot's
    // number never changes. `CURRENT` is the address of slots, which have a list at the offset, with
    // its blocks behind its head.
    unsafe {
        announced(&*(&raw const (*area).sequence).cast(), || {
            let current = CURRENT.load(Ordering::Acquire);
            let list = current.wrapping_add((*area).cpu_id_start as usize * SLOT_BYTES + offset);
            let blocks = list.wrapping_add(size_of::<Head>()).cast::<AtomicU64>();
            let blocks = slice::from_raw_parts(blocks, MAX_CAPACITY);
            operate(&*list.cast::<Head>(), blocks, current.addr())
        })
    }
}

/// Takes a block of the list at `offset` in the current slot. Returns null if it has none.
///
/// # Safety
/// `area` is the calling thread's, and a list begins at `offset` in each slot.
#[inline]
pub(crate) unsafe fn pop(area: *mut Area, offset: usize) -> *mut u8 {
    // SAFETY: by this function's contract.
    let block = unsafe { on_list(area, offset, |list, blocks, _| list.pop(blocks)) };
    std::ptr::with_exposed_provenance_mut(block.unwrap_or(0) as usize)
}

/// Adds a block to the list at `offset` in the current slot. Returns `false` if it is full.
///
/// # Safety
/// As for [`pop`]; the block is free and of the list's class.
#[inline]
pub(crate) unsafe fn push(area: *mut Area, offset: usize, block: *mut u8) -> bool {
    let block = block.expose_provenance() as u64;
    // SAFETY: by this function's contract.
    unsafe { on_list(area, offset, |list, blocks, _| list.push(blocks, block)) }
}

/// Adds a batch to the list of the current slot, whose limit grows by the length of the batch. Returns
/// `false` if the blocks do not fit or the lists are closed.
///
/// # Safety
/// As for [`push`], for each block; the batch is not empty.
pub(crate) unsafe fn fill(area: *mut Area, batch: &Batch) -> bool {
    // SAFETY: by this function's contract.
    unsafe {
        let added = slice::from_raw_parts(batch.blocks.cast::<u64>(), batch.length);
        on_list(area, batch.offset, |list, blocks, current| {
            current == batch.open && list.fill(blocks, added, batch.capacity)
        })
    }
}

/// Raises the limit of the list of the current slot by the length of the batch, unless the lists are closed.
///
/// # Safety
/// As for [`pop`].
pub(crate) unsafe fn grow(area: *mut Area, batch: &Batch) {
    // SAFETY: by this function's contract.
    unsafe {
        on_list(area, batch.offset, |list, _, current| {
            if current == batch.open {
                list.grow(batch.length, batch.capacity);
            }
        });
    }
}

/// Takes a batch from the list of the current slot. Returns `false` if it has not as many blocks.
///
/// # Safety
/// As for [`pop`]; the batch is not empty, and its blocks are writable.
pub(crate) unsafe fn drain(area: *mut Area, batch: &Batch) -> bool {
    // SAFETY: by this function's contract.
    unsafe {
        let taken = slice::from_raw_parts_mut(batch.blocks.cast::<u64>(), batch.length);
        on_list(area, batch.offset, |list, blocks, _| {
            list.drain(blocks, taken)
        })
    }
}
