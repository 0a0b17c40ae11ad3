//! The stacks at which tasks are created, by the place of the creation.
//!
//! A task keeps only its place: a file and a line. The first task of each place records the stack, of which one frame is
//! the function of that place. Places beyond the size of the table have none.

use std::panic::Location;

use plimsoll_sys::primitives::{AtomicU32, AtomicUsize, Ordering};
use plimsoll_unwind::registers::{Registers, Start};

use plimsoll_core::stack::{self, StackName, TABLE};

/// The number of entries, a power of two.
const ENTRIES: usize = 2048;

/// The number of entries that are tried for a place.
const TRIES: usize = 8;

struct Entry {
    /// The address of the `Location`; 0 for an entry that is free.
    place: AtomicUsize,
    /// The name of the stack; 0 until it is known, and if it is not.
    stack: AtomicU32,
}

static PLACES: [Entry; ENTRIES] = [const {
    Entry {
        place: AtomicUsize::new(0),
        stack: AtomicU32::new(0),
    }
}; ENTRIES];

/// Returns the entries of a place, in the order in which they are tried.
fn entries(place: usize) -> impl Iterator<Item = &'static Entry> {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (mixed >> (u64::BITS - ENTRIES.ilog2())) as usize;
    (first..first + TRIES).map(|at| &PLACES[at % ENTRIES])
}

/// Records the stack of the calling thread for a place, unless that was done.
#[inline]
pub(super) fn note(location: &'static Location<'static>) {
    let place = std::ptr::from_ref(location) as usize;
    let is_known = |entry: &Entry| entry.place.load(Ordering::Relaxed) == place;
    if !entries(place).next().is_some_and(is_known) {
        note_cold(place);
    }
}

#[cold]
#[inline(never)]
fn note_cold(place: usize) {
    for entry in entries(place) {
        match entry
            .place
            .compare_exchange(0, place, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => {
                if let Some(name) = stack::name_of(Start::Here(Registers::here())) {
                    entry.stack.store(name.0, Ordering::Release);
                }
                return;
            }
            Err(other) if other == place => return,
            Err(_) => {}
        }
    }
}

/// Returns the stack of the first task that was created at a place; empty if it is unknown.
pub(super) fn stack_of(location: &'static Location<'static>) -> &'static [usize] {
    let place = std::ptr::from_ref(location) as usize;
    let mut all = entries(place);
    let found = all.find(|entry| entry.place.load(Ordering::Relaxed) == place);
    let name = found.map_or(0, |entry| entry.stack.load(Ordering::Acquire));
    TABLE.stack(StackName(name))
}
