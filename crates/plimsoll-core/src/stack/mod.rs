//! Call stacks of events: their capture, and the table that counts events by stack.
//!
//! A stack is a list of return addresses, the leaf first. Of a deep one, only both ends are kept
//! ([`deep_stacks`](plimsoll_process::deep_stacks)). Names are resolved much later, when a profile is written.

mod capture;
mod epochs;
mod heap_cycle;
mod peak;
mod remote;
mod table;
mod unknown_code;

pub use capture::cache_later;
pub use capture::{
    Slot, Unwinder, events_with_cut_stack, events_with_shortened_stack, events_without_stack,
    find_interpreter, observe_modules, prepare, refresh_modules, slots_for_requests,
    slots_for_requests_made, with_stack, with_stack_of_event,
};
pub use heap_cycle::{CycleNumber, Stream};
pub use plimsoll_unwind::registers::{Registers, Start};
pub use plimsoll_unwind::walk_cache::StackName;
pub use remote::{BlockedAt, StackReader};
pub use table::Baseline;
pub use table::{
    Bucket, CPU_TABLE, Change, DEFAULT_BOUND as DEFAULT_TABLE_BYTES, Kind, LAYOUT as TABLE_LAYOUT,
    Record, SMALLEST_BOUND as SMALLEST_TABLE_BYTES, TABLE, join_forks,
};

use plimsoll_process::deep_stacks::Limit;
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use crate::label::{self, Labels};

pub use plimsoll_unwind::walk::{End, Walk};

/// Maximum depth of stacks, in frames.
pub const DEEPEST: usize = 1024;

/// Default depth of stacks, in frames.
pub const DEFAULT_DEPTH: usize = 128;

/// Frames captured beyond the depth. They allow for hidden frames of the allocator and of Plimsoll.
const HIDDEN_FRAMES: usize = 16;

static DEPTH: AtomicUsize = AtomicUsize::new(DEFAULT_DEPTH);

/// Returns the maximum number of frames that are kept of a stack.
pub fn depth() -> usize {
    DEPTH.load(Ordering::Relaxed)
}

/// Sets [`depth`], at most [`DEEPEST`], and returns the previous value.
pub fn set_depth(depth: usize) -> usize {
    DEPTH.swap(depth.min(DEEPEST), Ordering::Relaxed)
}

/// Returns the bucket for an event of `kind` and `size` at this point of the calling thread, with
/// the thread's labels. Never fails: an event whose stack cannot be captured or stored goes to a
/// bucket without one, and is counted as such.
#[inline(never)]
pub fn site(kind: Kind, size: u64) -> Bucket {
    let start = Start::Here(Registers::here());
    site_from(kind, size, label::current(), start)
}

/// Returns the bucket for a stack that begins elsewhere on the calling thread, with other labels.
pub fn site_from(kind: Kind, size: u64, labels: Labels, start: Start) -> Bucket {
    let limit = match depth() {
        0 => Limit::leaf_end(0),
        depth => Limit::new(depth).with_innermost(HIDDEN_FRAMES),
    };
    capture::with_stack_of_event(start, limit, |frames| {
        TABLE.bucket(kind, size, labels, frames)
    })
}

/// Returns the bucket of [`CPU_TABLE`] for the point at which a signal interrupted the calling
/// thread. For the signal's handler.
pub fn cpu_site(size: u64, labels: Labels, at: Registers) -> Bucket {
    capture::with_interrupted_stack(at, Limit::new(depth()), |frames| {
        CPU_TABLE.bucket(Kind::Cpu, size, labels, frames)
    })
}

/// Returns the name of the calling thread's stack from `start` on; `None` if the stack cannot be
/// captured or stored.
pub fn name_of(start: Start) -> Option<StackName> {
    capture::name_of(start, Limit::new(depth()), |frames| {
        TABLE.stack_name(frames)
    })
}
