//! Functions of an interpreted language on the stack.
//!
//! A native stack shows the interpreter's loop, not the functions that it executes. The interpreter
//! links the frames of these functions in memory, which a [`FrameSource`] can read. [`merge()`] reads
//! the frames of the calling thread and puts them in place of the loop's frames. [`merge_blocked()`]
//! does so for another thread.
//!
//! A function frame has an address like any other, in a reserved region where no code can be. So
//! the event table and the formats of profiles need no second kind of frame; [`describe`](names::describe)
//! returns the name that belongs to such an address.
//!
//! [`find`] looks for an interpreter when libraries were loaded. Until it finds one, an event pays
//! for one load of [`is_observed`].

mod frame_source;
mod merge;
pub mod names;

use std::sync::OnceLock;

pub use frame_source::{Execution, Found, FrameSource, Functions, OtherThreads};
pub use merge::{Blocked, Buffers, MAX_FRAMES, Native, merge, merge_blocked, merge_found};

/// The source of the interpreter in this process, once one was found.
static SOURCE: OnceLock<&'static dyn FrameSource> = OnceLock::new();

/// Returns whether [`merge()`] may find frames.
#[inline]
pub fn is_observed() -> bool {
    source().is_some()
}

#[inline]
fn source() -> Option<&'static dyn FrameSource> {
    SOURCE.get().copied()
}

/// Returns a reader of other threads, if an interpreter is known. Allocates: not for hooks.
pub fn other_threads() -> Option<Box<dyn OtherThreads>> {
    source().map(FrameSource::other_threads)
}

/// Looks for the interpreter of one of the sources, unless one is known. Calls `prepare` before the first
/// event uses what was found. Not for hooks.
pub fn find(sources: &[&'static dyn FrameSource], prepare: impl FnOnce()) {
    if is_observed() {
        return;
    }
    let found = sources.iter().find(|source| source.find());
    if let Some(&source) = found.filter(|_| names::reserve()) {
        prepare();
        // Another thread may have found the same one.
        let _ = SOURCE.set(source);
    }
}
