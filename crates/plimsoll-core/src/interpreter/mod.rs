//! Functions of an interpreted language on the stack: Python's.
//!
//! A native stack shows the interpreter's loop, not the functions that it executes. The interpreter
//! links the frames of these functions in memory. [`merge()`] reads the frames of the calling thread
//! and puts them in place of the loop's frames. [`merge_blocked()`] does so for another thread.
//!
//! A function frame has an address like any other, in a reserved region where no code can be. So
//! the event table and the formats of profiles need no second kind of frame; [`describe`] returns
//! the name that belongs to such an address.
//!
//! [`find`] looks for an interpreter when libraries were loaded. Until it finds one, an event pays
//! for one load of [`is_observed`].

mod memory;
mod merge;
mod names;
mod python;

use plimsoll_sys::primitives::{AtomicBool, Ordering};

pub use merge::{Blocked, Buffers, Native, merge, merge_blocked};
pub use names::describe;
pub use python::OtherThreads;

/// Whether the process contains an interpreter whose frames can be read.
static OBSERVED: AtomicBool = AtomicBool::new(false);

/// Returns whether [`merge()`] may find frames.
#[inline]
pub fn is_observed() -> bool {
    OBSERVED.load(Ordering::Acquire)
}

/// Looks for an interpreter, unless one is known. Calls `prepare` before the first event uses what
/// was found. Not for hooks.
pub fn find(prepare: impl FnOnce()) {
    if !is_observed() && python::find() && names::reserve() {
        prepare();
        OBSERVED.store(true, Ordering::Release);
    }
}
