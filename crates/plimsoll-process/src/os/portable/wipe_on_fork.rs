//! Tables about the threads of a process, which are useless in the child of a fork. This system does
//! not clear them: the child does.

use std::ops::Deref;

/// A table. All zeros must be the empty table.
pub struct Forgotten<T> {
    table: T,
}

impl<T> Forgotten<T> {
    /// Creates a table with these contents.
    #[inline]
    pub const fn new(table: T) -> Self {
        Self { table }
    }

    /// Does nothing.
    #[inline]
    pub fn prepare(&'static self) {}

    /// Returns `false`: in the child of a fork, the table is a copy of the parent's.
    #[inline]
    pub fn is_forgotten(&self) -> bool {
        false
    }
}

impl<T> Deref for Forgotten<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.table
    }
}
