//! Tables about the threads of a process, which are useless in the child of a fork: the child has
//! one thread. The system fills them with zeros in the child, and copies nothing.
//!
//! Clearing them in the child would take longer than the fork: reading a page maps it first, even
//! if it was never written.

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use plimsoll_sys::os::pages::page_size;

/// The tables that the system clears, in no order. They are recorded outside of the tables, so that
/// neighbouring tables form one mapping: a fork takes longer for each mapping.
static CLEARED: [AtomicPtr<()>; 8] = [const { AtomicPtr::new(ptr::null_mut()) }; 8];

/// A table in separate pages. All zeros must be the empty table.
///
/// Aligned to the largest pages of the processor, with which its size is a multiple of every size of pages.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Forgotten<T>(T);

impl<T> Forgotten<T> {
    /// Creates a table with these contents.
    #[inline]
    pub const fn new(table: T) -> Self {
        Self(table)
    }

    /// Requests that the system clears the table in children of later forks. Call before `main`.
    pub fn prepare(&'static self) {
        self.prepare_with(page_size());
    }

    fn prepare_with(&'static self, page: usize) {
        let start = (&raw const *self).cast_mut();
        // A loader may not respect the alignment. Parts of pages would take their neighbours along.
        let is_whole_pages = start.addr() % page == 0 && size_of::<Self>() % page == 0;
        let may_advise = plimsoll_sys::os::filter::allows(libc::SYS_madvise);
        if self.is_forgotten() || !is_whole_pages || !may_advise {
            return;
        }
        // SAFETY: the range is whole pages of this table only, and zeros are a valid table.
        let answer =
            unsafe { libc::madvise(start.cast(), size_of::<Self>(), libc::MADV_WIPEONFORK) };
        if answer == 0 {
            // If all places are taken, the table counts as a copy.
            let _ = CLEARED.iter().find(|place| {
                place
                    .compare_exchange(
                        ptr::null_mut(),
                        start.cast(),
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            });
        }
    }

    /// Returns whether, in the child of a fork, the system cleared the table. Otherwise, the table
    /// is a copy of the parent's.
    #[inline]
    pub fn is_forgotten(&self) -> bool {
        let start = (&raw const *self).cast();
        CLEARED
            .iter()
            .any(|place| place.load(Ordering::Relaxed).cast_const() == start)
    }
}

impl<T> Deref for Forgotten<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    static CLEARED_TABLE: Forgotten<AtomicU32> = Forgotten::new(AtomicU32::new(0));
    static COPIED_TABLE: Forgotten<AtomicU32> = Forgotten::new(AtomicU32::new(0));

    #[test]
    fn a_table_in_parts_of_pages_is_not_cleared() {
        static TABLE: Forgotten<AtomicU32> = Forgotten::new(AtomicU32::new(0));
        TABLE.prepare_with(2 * size_of::<Forgotten<AtomicU32>>());
        assert!(!TABLE.is_forgotten());
    }

    #[test]
    fn a_forked_child_has_empty_tables_and_copies_of_those_that_were_not_prepared() {
        CLEARED_TABLE.prepare();
        CLEARED_TABLE.store(1, Ordering::Relaxed);
        COPIED_TABLE.store(1, Ordering::Relaxed);
        // SAFETY: the child only reads memory and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        let contents = [&CLEARED_TABLE, &COPIED_TABLE].map(|table| table.load(Ordering::Relaxed));
        if child == 0 {
            let is_right =
                contents == [0, 1] && CLEARED_TABLE.is_forgotten() && !COPIED_TABLE.is_forgotten();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        assert_eq!(contents, [1, 1]);
        let mut status = 1;
        // SAFETY: waits for the own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
