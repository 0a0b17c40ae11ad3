//! Measurements of what a thread allocates, without cost for threads that are not measured.
//!
//! While a measurement is active on a thread, the thread's fast path is closed as for a thread that
//! ends: its area is null, its countdown always negative, its limit above every address. So every
//! allocation and every free of the thread takes the cold path, which adds to all active
//! measurements. The fast path has no test for this. Sampling continues with the saved distance, and
//! the ledger counts as before.
//!
//! A poll of a task with an account is a measurement, too, which adds to the [totals](Totals) of the
//! account and of those outside it.
//!
//! The measurements of a thread form a list, in any order of their ends. Only the thread reads and
//! writes it, with plain cells. A signal handler that allocates in the midst is counted, too.

mod charge;
mod sites;

use std::cell::Cell;

use super::thread::Thread;
use crate::stack::{self, Registers, StackName, Start};
use plimsoll_ledger::postmortem_file;

use charge::Charge;
pub use charge::{Totals, charged, inherited_account};
pub use sites::Sites;

thread_local! {
    /// The active measurements of the thread.
    static ACTIVE: Cell<*const Counts> = const { Cell::new(std::ptr::null()) };
}

/// The counts of one measurement. Sizes are those that the program requested.
pub struct Counts {
    next: Cell<*const Counts>,
    /// Blocks allocated.
    pub allocations: Cell<u64>,
    /// Blocks freed.
    pub frees: Cell<u64>,
    /// Bytes allocated.
    pub allocated_bytes: Cell<u64>,
    /// Bytes freed.
    pub freed_bytes: Cell<u64>,
    /// The maximum of the bytes allocated less those freed.
    pub max_bytes: Cell<i64>,
    /// The maximum of the number of allocations less that of frees.
    pub max_blocks: Cell<i64>,
    /// Where the sites of allocations are counted, if they are.
    sites: Option<Box<Sites>>,
    /// The accounts that are charged, if any are.
    charge: Option<Charge>,
}

impl Counts {
    /// Returns counts of nothing yet, with sites if they are to be counted.
    pub fn new(sites: Option<Box<Sites>>) -> Self {
        Self::all(sites, None)
    }

    fn all(sites: Option<Box<Sites>>, charge: Option<Charge>) -> Self {
        Self {
            next: Cell::new(std::ptr::null()),
            allocations: Cell::new(0),
            frees: Cell::new(0),
            allocated_bytes: Cell::new(0),
            freed_bytes: Cell::new(0),
            max_bytes: Cell::new(0),
            max_blocks: Cell::new(0),
            sites,
            charge,
        }
    }

    /// Returns the sites, if they are counted.
    pub fn sites(&self) -> Option<&Sites> {
        self.sites.as_deref()
    }

    #[inline(always)]
    fn change(&self, allocated: Option<usize>, freed: Option<usize>) {
        let add = |cell: &Cell<u64>, amount: usize| cell.set(cell.get() + amount as u64);
        if let Some(size) = freed {
            add(&self.frees, 1);
            add(&self.freed_bytes, size);
        }
        if let Some(size) = allocated {
            add(&self.allocations, 1);
            add(&self.allocated_bytes, size);
            let raise = |max: &Cell<i64>, more: &Cell<u64>, less: &Cell<u64>| {
                let net = more.get().wrapping_sub(less.get()) as i64;
                if net > max.get() {
                    max.set(net);
                }
            };
            raise(&self.max_bytes, &self.allocated_bytes, &self.freed_bytes);
            raise(&self.max_blocks, &self.allocations, &self.frees);
        }
        if let Some(charge) = &self.charge {
            charge.change(allocated, freed);
        }
    }
}

/// Returns whether the calling thread is measured.
#[inline]
pub(super) fn is_active() -> bool {
    !ACTIVE.get().is_null()
}

/// Begins a measurement on the calling thread.
///
/// # Safety
/// The counts stay valid at their address until [`end`].
pub unsafe fn begin(counts: &Counts) {
    counts.next.set(ACTIVE.get());
    if ACTIVE.replace(counts).is_null() {
        // A thread that is not set up yet is so by its first operation, which must take the cold path: it
        // registers the thread with the allocator's backend.
        Thread::here().begin_measured();
    }
}

/// Ends a measurement of the calling thread. Does nothing if it is not active.
pub fn end(counts: &Counts) {
    let mut place = ACTIVE.with(std::ptr::from_ref);
    // SAFETY: `place` is the thread's own storage, or a field of counts in the list, which are valid
    // by the contract of `begin`.
    unsafe {
        while let Some(at) = (*place).get().as_ref() {
            if std::ptr::eq(at, counts) {
                (*place).set(at.next.get());
                break;
            }
            place = &raw const at.next;
        }
    }
    if ACTIVE.get().is_null() {
        Thread::here().end_measured();
    }
}

/// Adds an allocation to the active measurements. For hooks.
///
/// This and the next two are not inlined, because their callers are compiled into the program.
#[inline(never)]
pub(super) fn allocated(size: usize) {
    changed(Some(size), None);
}

/// Adds a free to the active measurements. For hooks.
#[inline(never)]
pub(super) fn freed(size: usize) {
    changed(None, Some(size));
}

/// Adds a reallocation to the active measurements. For hooks.
#[inline(never)]
pub(super) fn reallocated(new_size: usize, old_size: usize) {
    changed(Some(new_size), Some(old_size));
}

#[inline(always)]
fn changed(allocated: Option<usize>, freed: Option<usize>) {
    let mut next = ACTIVE.get();
    let mut stack = None;
    // SAFETY: counts in the list are valid, by the contract of `begin`.
    while let Some(counts) = unsafe { next.as_ref() } {
        counts.change(allocated, freed);
        if let (Some(size), Some(sites)) = (allocated, counts.sites()) {
            let stack = *stack.get_or_insert_with(stack_here);
            sites.add(stack, size);
        }
        next = counts.next.get();
    }
}

/// Returns the name of the calling thread's stack.
#[cold]
#[inline(never)]
fn stack_here() -> Option<StackName> {
    postmortem_file::leave_if_parents();
    stack::name_of(Start::Here(Registers::here()))
}
