//! Tables of what the threads of a process do, which the child of a fork is not to have: it has one
//! thread. The system gives it zeros in their place, and copies nothing.
//!
//! To look through them in the child would take longer than the fork: each page that is looked at
//! is mapped first, though nobody ever wrote to it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table in pages of its own. All zeros is one in which nothing is.
pub(crate) struct Forgotten<T> {
    table: Pages<T>,
    /// Whether the system does it. Not in those pages.
    by_system: AtomicBool,
}

#[repr(C, align(4096))]
struct Pages<T>(T);

impl<T> Forgotten<T> {
    pub(crate) const fn new(table: T) -> Self {
        Self {
            table: Pages(table),
            by_system: AtomicBool::new(false),
        }
    }

    /// From now on, children of a fork have zeros there; if the system can do that. Before `main`.
    pub(crate) fn prepare(&'static self) {
        #[cfg(target_os = "linux")]
        {
            let start = (&raw const self.table).cast_mut().cast();
            // SAFETY: whole pages with nothing else in them, of which zeros are a value.
            let answer =
                unsafe { libc::madvise(start, size_of::<Pages<T>>(), libc::MADV_WIPEONFORK) };
            self.by_system.store(answer == 0, Ordering::Relaxed);
        }
    }

    /// In the child of a fork: whether there are zeros. Otherwise, it is the parent's table.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.by_system.load(Ordering::Relaxed)
    }
}

impl<T> Deref for Forgotten<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.table.0
    }
}
