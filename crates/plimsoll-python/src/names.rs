//! The addresses that stand for functions.

use plimsoll_core::interpreter::names::{self, Source};

/// A table of functions with lines, and a cache of them by the interpreter's pointers.
pub(crate) trait Names {
    /// Returns the address that stands for a function and a line, if the cache has the key.
    fn cached(&mut self, key: u64) -> Option<usize>;

    /// Returns the address that stands for a function and a line, and keeps it in the cache.
    fn intern(&mut self, key: u64, source: Source<'_>, line: u32) -> Option<usize>;
}

/// The table of this process, for hooks.
pub(crate) struct Interned;

impl Names for Interned {
    #[inline]
    fn cached(&mut self, key: u64) -> Option<usize> {
        names::cached(key)
    }

    fn intern(&mut self, key: u64, source: Source<'_>, line: u32) -> Option<usize> {
        names::intern(key, source, line)
    }
}
