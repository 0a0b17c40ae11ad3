//! The records of all runs of pages, apart from the memory that they describe.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use plimsoll_sys::os::region::Region;

use crate::size_class::MAX_BLOCKS;

/// The number of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(NonZeroU32);

impl Id {
    /// Returns the number, which is not 0.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns the record of a number; `None` for 0.
    pub(crate) fn of(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }
}

/// The use of a run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Free, and its memory is with the process.
    Idle,
    /// Free, and its memory is with the system.
    Released,
    /// Blocks of a size class.
    Small,
    /// One block.
    Large,
}

/// A run of pages.
pub(crate) struct Span {
    /// The first page, counted from the start of the heap.
    pub(crate) first: u32,
    pub(crate) pages: u32,
    pub(super) next: Option<Id>,
    previous: Option<Id>,
    pub(crate) state: Use,
    /// Whether all bytes are zero, unless a block was written to.
    pub(crate) is_zero: bool,
    /// The class of a small span.
    pub(crate) class: u8,
    /// The list of partly free spans in which the span is.
    pub(crate) list: Option<u8>,
    /// The number of free blocks of a small span.
    pub(crate) free: u16,
    /// A bit for each free block of a small span.
    pub(crate) free_blocks: [u64; MAX_BLOCKS / 64],
}

impl Span {
    /// Returns the record of a run that is in no list.
    pub(super) fn new(first: u32, pages: u32, state: Use, is_zero: bool) -> Self {
        Self {
            first,
            pages,
            next: None,
            previous: None,
            state,
            is_zero,
            class: 0,
            list: None,
            free: 0,
            free_blocks: [0; MAX_BLOCKS / 64],
        }
    }
}

/// Access to the records, each of which stays at the same address for good.
///
/// The lock of the page heap guards all records except those of small spans that a class owns, which
/// the lock of that class guards. The page heap reads the state of a neighbour from its map.
pub(crate) struct Spans {
    base: usize,
}

/// The maximum number of records.
pub(super) const MAX_SPANS: usize = 1 << 26;

impl Spans {
    /// Returns access to the records in `region`.
    pub(super) fn of(region: &Region) -> Self {
        Self {
            base: region.base(),
        }
    }

    /// Puts a run before `head`, the first of a list.
    pub(crate) fn link(&mut self, id: Id, head: Option<Id>) {
        self[id].next = head;
        self[id].previous = None;
        if let Some(head) = head {
            self[head].previous = Some(id);
        }
    }

    /// Takes a run out of its list, whose head the caller corrects.
    pub(crate) fn unlink(&mut self, id: Id) {
        let (previous, next) = (self[id].previous, self[id].next);
        if let Some(previous) = previous {
            self[previous].next = next;
        }
        if let Some(next) = next {
            self[next].previous = previous;
        }
        self[id].next = None;
        self[id].previous = None;
    }

    /// Returns the run after `id` in its list.
    pub(crate) fn next(&self, id: Id) -> Option<Id> {
        self[id].next
    }

    /// Returns a list's runs.
    pub(super) fn list(&self, head: Option<Id>) -> impl Iterator<Item = Id> {
        std::iter::successors(head, |&id| self[id].next)
    }

    /// Returns the address of a record.
    pub(super) fn at(&self, id: Id) -> *mut Span {
        (self.base + id.number() as usize * size_of::<Span>()) as *mut Span
    }
}

/// Creates and destroys records.
pub(super) struct Records {
    used: u32,
    /// The free records.
    unused: Option<Id>,
}

impl Records {
    pub(super) const fn new() -> Self {
        Self {
            used: 0,
            unused: None,
        }
    }

    /// Makes a record of a run in `region`. Returns `None` if memory for it is lacking.
    pub(super) fn create(&mut self, region: &Region, span: Span) -> Option<Id> {
        let spans = Spans::of(region);
        let id = match self.unused {
            Some(id) => {
                self.unused = spans[id].next;
                id
            }
            None => {
                let id = Id::of(self.used + 1)?;
                if !region.commit((id.number() as usize + 1) * size_of::<Span>()) {
                    return None;
                }
                self.used = id.number();
                id
            }
        };
        // SAFETY: the record lies in committed memory, and no reference to it exists.
        unsafe { spans.at(id).write(span) };
        Some(id)
    }

    /// Frees a record.
    pub(super) fn destroy(&mut self, spans: &mut Spans, id: Id) {
        spans[id].next = self.unused;
        self.unused = Some(id);
    }
}

impl Index<Id> for Spans {
    type Output = Span;

    fn index(&self, id: Id) -> &Span {
        // SAFETY: an `Id` is made for a committed record only, and the caller owns the lock that guards
        // the record.
        unsafe { &*self.at(id) }
    }
}

impl IndexMut<Id> for Spans {
    fn index_mut(&mut self, id: Id) -> &mut Span {
        // SAFETY: as for `index`.
        unsafe { &mut *self.at(id) }
    }
}
