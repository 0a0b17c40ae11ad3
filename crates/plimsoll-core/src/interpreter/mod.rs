//! The interpreter in this process whose functions are shown on stacks, by [`plimsoll_interpreter`].
//!
//! [`find`] looks for an interpreter when libraries were loaded. Until it finds one, an event pays
//! for one load of [`is_observed`].

pub mod names;

use std::sync::OnceLock;

use plimsoll_interpreter::{
    Buffers, FrameSource, MAX_FRAMES, Native, OtherThreads, merge_if_on_stack,
};
use plimsoll_process::deep_stacks::Limit;
use plimsoll_unwind::walk::End;

use names::Interned;

/// The source of the interpreter in this process, once one was found.
static SOURCE: OnceLock<&'static dyn FrameSource> = OnceLock::new();

/// Returns whether [`merge`] may find frames.
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

/// Returns the native stack of the calling thread with its functions, and the reason for which it ends;
/// `None` if the thread executes no function. The buffers contain the positions of the native frames. For
/// hooks.
pub fn merge<'a>(
    native: Native<'_>,
    buffers: &'a mut Buffers,
    limit: Limit,
) -> Option<(&'a [usize], End)> {
    let limit = limit.at_most(MAX_FRAMES);
    let found = source()?.read(&mut Interned, buffers.functions(), limit)?;
    Some(plimsoll_interpreter::merge(native, buffers, limit, &found))
}

/// A blocked thread, and the means of reading it.
pub struct Blocked<'a> {
    /// The system's number of the thread.
    pub thread: i32,
    /// The reader of other threads.
    pub threads: &'a mut dyn OtherThreads,
    /// Reports whether the thread has been blocked since its native stack was read.
    pub is_unmoved: &'a mut dyn FnMut() -> bool,
}

/// The same as [`merge`] for a blocked thread. `None` also if the functions do not belong to this
/// stack. Allocates: not for hooks.
pub fn merge_blocked<'a>(
    native: Native<'_>,
    buffers: &'a mut Buffers,
    limit: Limit,
    blocked: Blocked<'_>,
) -> Option<(&'a [usize], End)> {
    let Blocked {
        thread,
        threads,
        is_unmoved,
    } = blocked;
    let limit = limit.at_most(MAX_FRAMES);
    let functions = buffers.functions();
    let found = threads.read(thread, &mut Interned, functions, limit, is_unmoved)?;
    merge_if_on_stack(native, buffers, limit, &found)
}
