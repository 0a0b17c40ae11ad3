//! The interface to a library that interposes `malloc` and its relatives, for readings.

use std::ffi::c_void;
use std::sync::OnceLock;

/// A library that interposes `malloc`. None of its functions is for hooks.
pub trait Interposition: Sync {
    /// Returns the kind of the allocator below it.
    fn underlying_kind(&self) -> UnderlyingKind;

    /// Returns whether a function lies in the same object as that allocator. False for
    /// [`UnderlyingKind::Unmeasured`].
    fn is_allocators(&self, function: *const c_void) -> bool;

    /// Returns whether functions of an allocator that is linked into the program are redirected.
    fn is_linked_redirected(&self) -> bool;

    /// Returns why the functions of the program's allocator were not redirected; `None` if it has none, or if
    /// they were.
    fn why_not_redirected(&self) -> Option<String>;

    /// Returns the path of the library.
    fn path(&self) -> Option<String>;

    /// Returns the peak of the bytes in use, including this reading of `live_bytes`.
    fn peak(&self, live_bytes: u64) -> Peak;

    /// Discards the peak and starts again from `live_bytes`: in the child of a fork.
    fn restart_peak(&self, live_bytes: u64);
}

/// The kind of the underlying allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderlyingKind {
    /// The C library's.
    Libc,
    /// Another allocator.
    Other,
    /// Another allocator without `malloc_usable_size` or without aligned allocation. Definitions of
    /// these in other objects do not know its blocks. Calls are forwarded without counting.
    Unmeasured,
    /// The program contains an allocator and calls neither; its allocations are not seen.
    Program,
    /// The program contains an allocator, whose functions are redirected to hooks. Calls of the
    /// interposed functions are forwarded without counting.
    Redirected,
}

/// The peak of the bytes in use.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// The most bytes that were in use at one instant.
    pub bytes: u64,
    /// Whether the samples yielded the figure, because no reading was made in between.
    pub is_estimated: bool,
}

static INTERPOSITION: OnceLock<&'static dyn Interposition> = OnceLock::new();

/// Registers the library that interposes `malloc`, before `main`. The first one stays.
pub fn register(library: &'static dyn Interposition) {
    let _ = INTERPOSITION.set(library);
}

/// Returns the library that interposes `malloc`, if one does.
pub fn registered() -> Option<&'static dyn Interposition> {
    INTERPOSITION.get().copied()
}

/// Returns the kind of the allocator below the interposition, if there is one.
pub fn underlying_kind() -> Option<UnderlyingKind> {
    registered().map(Interposition::underlying_kind)
}
