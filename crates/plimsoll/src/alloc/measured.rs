//! Measurements of what a thread allocates, without cost for threads that are not measured.
//!
//! While a measurement is active on a thread, the thread's fast path is closed as for a thread that
//! ends: its area is null, its countdown always negative, its limit above every address. So every
//! allocation and every free of the thread takes the cold path, which adds to all active
//! measurements. The fast path has no test for this. Sampling continues with the saved distance, and
//! the ledger counts as before.
//!
//! The measurements of a thread form a list, in any order of their ends. Only the thread reads and
//! writes it, with plain cells. A signal handler that allocates in the midst is counted, too.

use std::cell::Cell;

use super::thread::Thread;
use crate::postmortem_file;
use crate::stack::{self, Registers, StackName, Start};

thread_local! {
    /// The active measurements of the thread.
    static ACTIVE: Cell<*const Counts> = const { Cell::new(std::ptr::null()) };
}

/// The counts of one measurement. Sizes are those that the program requested.
pub(crate) struct Counts {
    next: Cell<*const Counts>,
    pub(crate) allocations: Cell<u64>,
    pub(crate) frees: Cell<u64>,
    pub(crate) allocated_bytes: Cell<u64>,
    pub(crate) freed_bytes: Cell<u64>,
    /// The maximum of the bytes allocated less those freed.
    pub(crate) max_bytes: Cell<i64>,
    /// Where the sites of allocations are counted, if they are.
    sites: Option<Box<Sites>>,
}

/// The number of different sites that a measurement records.
const MAX_SITES: usize = 64;

/// Allocations by stack. All that exceed the number of sites, or have no stack, are counted together.
pub(crate) struct Sites {
    sites: [Site; MAX_SITES],
    used: Cell<usize>,
    pub(crate) others: Cell<u64>,
}

struct Site {
    stack: Cell<StackName>,
    allocations: Cell<u64>,
    bytes: Cell<u64>,
}

impl Sites {
    /// The caller allocates it within a scope.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            sites: [const {
                Site {
                    stack: Cell::new(StackName(0)),
                    allocations: Cell::new(0),
                    bytes: Cell::new(0),
                }
            }; MAX_SITES],
            used: Cell::new(0),
            others: Cell::new(0),
        })
    }

    fn add(&self, stack: Option<StackName>, size: usize) {
        let used = self.used.get();
        let of_stack = stack.and_then(|stack| {
            let known = self.sites[..used]
                .iter()
                .find(|site| site.stack.get() == stack);
            known.or_else(|| {
                let next = self.sites.get(used)?;
                next.stack.set(stack);
                self.used.set(used + 1);
                Some(next)
            })
        });
        match of_stack {
            Some(site) => {
                site.allocations.set(site.allocations.get() + 1);
                site.bytes.set(site.bytes.get() + size as u64);
            }
            None => self.others.set(self.others.get() + 1),
        }
    }

    /// Returns stack, allocations and bytes of each site, in the order of the first allocation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static [usize], u64, u64)> {
        self.sites[..self.used.get()].iter().map(|site| {
            let stack = stack::TABLE.stack(site.stack.get());
            (stack, site.allocations.get(), site.bytes.get())
        })
    }
}

impl Counts {
    pub(crate) fn new(sites: Option<Box<Sites>>) -> Self {
        Self {
            next: Cell::new(std::ptr::null()),
            allocations: Cell::new(0),
            frees: Cell::new(0),
            allocated_bytes: Cell::new(0),
            freed_bytes: Cell::new(0),
            max_bytes: Cell::new(0),
            sites,
        }
    }

    pub(crate) fn sites(&self) -> Option<&Sites> {
        self.sites.as_deref()
    }

    /// Returns the bytes allocated less those freed.
    pub(crate) fn net_bytes(&self) -> i64 {
        self.allocated_bytes
            .get()
            .wrapping_sub(self.freed_bytes.get()) as i64
    }

    fn change(&self, allocated: Option<usize>, freed: Option<usize>) {
        let add = |cell: &Cell<u64>, amount: usize| cell.set(cell.get() + amount as u64);
        if let Some(size) = freed {
            add(&self.frees, 1);
            add(&self.freed_bytes, size);
        }
        if let Some(size) = allocated {
            add(&self.allocations, 1);
            add(&self.allocated_bytes, size);
            self.max_bytes
                .set(self.max_bytes.get().max(self.net_bytes()));
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
pub(crate) unsafe fn begin(counts: &Counts) {
    let thread = Thread::current();
    counts.next.set(ACTIVE.get());
    ACTIVE.set(counts);
    thread.set_route();
}

/// Ends a measurement of the calling thread. Does nothing if it is not active.
pub(crate) fn end(counts: &Counts) {
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
    Thread::here().set_route();
}

/// Adds an allocation, a free, or both in a reallocation, to the active measurements. For hooks.
#[inline]
pub(super) fn changed(allocated: Option<usize>, freed: Option<usize>) {
    let first = ACTIVE.get();
    if !first.is_null() {
        changed_cold(first, allocated, freed);
    }
}

/// Returns the name of the calling thread's stack.
fn stack_here() -> Option<StackName> {
    postmortem_file::leave_if_parents();
    stack::name_of(Start::Here(Registers::here()))
}

#[cold]
#[inline(never)]
fn changed_cold(first: *const Counts, allocated: Option<usize>, freed: Option<usize>) {
    let mut next = first;
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
