//! Where an event happened: capturing call stacks, and the table that counts events by them.
//!
//! A stack is a list of return addresses, the leaf first. Names come much later, when a profile is
//! written.

mod capture;
mod cuts;
mod foreign;
mod frame_pointers;
mod heap_cycle;
mod lost_frame;
mod memory;
mod modules;
mod peak;
mod registers;
#[cfg(feature = "offline")]
pub(crate) mod remains;
mod remembered;
mod rules;
mod table;
mod unknown_code;
mod unwind_tables;

pub(crate) use capture::{
    RetiredList, Slot, Unwinder, events_with_cut_stack, events_without_stack,
    forget_vanished_threads, lock_lists, prepare, refresh_modules, slots_for_requests,
    slots_for_requests_made, with_stack, with_stack_of_event,
};
pub(crate) use foreign::StackReader;
pub(crate) use heap_cycle::{CycleNumber, Stream};
pub(crate) use registers::{Registers, Start};
pub(crate) use table::{
    Bucket, Change, DEFAULT_BOUND as DEFAULT_TABLE_BYTES, Kind, Record,
    SMALLEST_BOUND as SMALLEST_TABLE_BYTES, StackName, TABLE,
};

pub(crate) use table::SHAPE;

use crate::label::{self, Labels};
use crate::primitives::{AtomicUsize, Ordering};

pub(crate) use unwind_tables::{End, Walk};

/// The most frames a stack can be set to hold.
pub(crate) const DEEPEST: usize = 1024;

/// Frames kept of a stack unless set otherwise.
pub(crate) const DEFAULT_DEPTH: usize = 128;

/// Frames captured beyond the depth, for those of the allocator and of this crate, which are not
/// shown.
const HIDDEN_FRAMES: usize = 16;

static DEPTH: AtomicUsize = AtomicUsize::new(DEFAULT_DEPTH);

/// How many frames are kept of a stack, from the leaf.
pub(crate) fn depth() -> usize {
    DEPTH.load(Ordering::Relaxed)
}

/// Sets [`depth`], at most [`DEEPEST`], and returns the one before.
pub(crate) fn set_depth(depth: usize) -> usize {
    DEPTH.swap(depth.min(DEEPEST), Ordering::Relaxed)
}

/// The bucket for an event of `kind` and `size` on the calling thread, right here, with its labels.
/// Never fails: an event whose stack cannot be had or kept goes to a bucket without one, and is
/// counted as such.
#[inline(never)]
pub(crate) fn site(kind: Kind, size: u64) -> Bucket {
    let start = Start::Here(Registers::here());
    site_from(kind, size, label::current(), start)
}

/// The same for a stack that begins elsewhere on the calling thread, and other labels.
pub(crate) fn site_from(kind: Kind, size: u64, labels: Labels, start: Start) -> Bucket {
    let limit = match depth() {
        0 => 0,
        depth => depth + HIDDEN_FRAMES,
    };
    capture::with_stack_of_event(start, limit, |frames| {
        TABLE.bucket(kind, size, labels, frames)
    })
}

/// The name of the stack of the calling thread from `start` on; `None` if it cannot be had or kept.
pub(crate) fn name_of(start: Start) -> Option<StackName> {
    capture::name_of(start, depth(), |frames| TABLE.stack_name(frames))
}
