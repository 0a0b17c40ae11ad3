//! Tables about the threads of a process, which are useless in the child of a fork: the child has
//! one thread. The system fills them with zeros in the child, and copies nothing.
//!
//! Clearing them in the child would take longer than the fork: reading a page maps it first, even
//! if it was never written.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table in separate pages. All zeros must be the empty table.
pub struct Forgotten<T> {
    table: Pages<T>,
    /// Whether the system clears the table. Stored outside of the cleared pages.
    by_system: AtomicBool,
}

#[repr(C, align(4096))]
struct Pages<T>(T);

impl<T> Forgotten<T> {
    /// Creates a table with these contents.
    #[inline]
    pub const fn new(table: T) -> Self {
        Self {
            table: Pages(table),
            by_system: AtomicBool::new(false),
        }
    }

    /// Requests that the system clears the table in children of later forks. Call before `main`.
    pub fn prepare(&'static self) {
        let start = (&raw const self.table).cast_mut().cast();
        // SAFETY: the range is whole pages of this table only, and zeros are a valid table.
        let answer = unsafe { libc::madvise(start, size_of::<Pages<T>>(), libc::MADV_WIPEONFORK) };
        self.by_system.store(answer == 0, Ordering::Relaxed);
    }

    /// Returns whether, in the child of a fork, the system cleared the table. Otherwise, the table
    /// is a copy of the parent's.
    #[inline]
    pub fn is_forgotten(&self) -> bool {
        self.by_system.load(Ordering::Relaxed)
    }
}

impl<T> Deref for Forgotten<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.table.0
    }
}
