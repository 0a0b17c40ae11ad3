//! Address space that is reserved at once and used from the bottom up.
//!
//! A reservation is inaccessible until it is committed: it takes no memory, does not count against
//! overcommit, and `mlockall` does not fill it. Committing takes a system call for each
//! [`COMMIT_STEP`]. The committed part only grows, so concurrent calls are harmless. What is not committed can be given
//! back, before the program limits its address space.

use std::ops::Range;

use super::pages;
use crate::primitives::{AtomicBool, AtomicUsize, Ordering};

pub use super::pages::{
    PAGE, address_space_limit, allow_huge, discard, forbid_huge, is_page_size_supported, page_size,
    unmap,
};

/// The part of a limit of the address space that all reservations together may take: 2 %.
const PART_OF_LIMIT: usize = 50;

/// Bytes that reservations have taken of the address space.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The number of threads that are making memory accessible.
static COMMITTING: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread gives address space back. Another one, or a signal handler on that thread, then does not.
static GIVING_BACK: AtomicBool = AtomicBool::new(false);

/// Counts the calling thread as committing, until this is dropped.
struct Committing;

impl Committing {
    fn begin() -> Self {
        // Before the length is read: a thread that gives memory back either sees this count or is seen to have done so.
        COMMITTING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        COMMITTING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns whether all calls that began before have ended. Does not wait long: such a thread may be stopped.
fn commits_have_ended() -> bool {
    const LOOKS: usize = 1000;
    (0..LOOKS).any(|_| {
        std::hint::spin_loop();
        COMMITTING.load(Ordering::SeqCst) == 0
    })
}

/// The part of a limit of the address space of `limit` bytes that a reservation may keep beyond what it uses: a quarter of
/// what all may take.
pub fn part_of_limit(limit: usize) -> usize {
    limit / PART_OF_LIMIT / 4
}

/// Returns `length`, or half of the part of a limited address space that Plimsoll may still take, if that is less.
pub fn within_address_space_limit(length: usize) -> usize {
    let Some(limit) = address_space_limit() else {
        return length;
    };
    let part = (limit / PART_OF_LIMIT).saturating_sub(TAKEN.load(Ordering::Relaxed));
    length.min(part / 2 / page_size() * page_size())
}

/// The granularity of committing, in bytes.
pub const COMMIT_STEP: usize = 256 * 1024;

/// A reservation. `const`-constructible and empty until [`Region::reserve`] succeeds.
pub struct Region {
    base: AtomicUsize,
    length: AtomicUsize,
    committed: AtomicUsize,
    /// Whether the memory belongs to a file, so that committing must also allocate disk space.
    in_file: AtomicBool,
}

/// A part of a mapped file, still inaccessible, that can serve a region in place of a separate
/// reservation.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The address of the first byte.
    pub base: usize,
    /// The length in bytes.
    pub length: usize,
}

impl Default for Region {
    fn default() -> Self {
        Self::new()
    }
}

impl Region {
    /// Creates a region without memory.
    #[inline]
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            in_file: AtomicBool::new(false),
        }
    }

    /// Reserves `length` bytes at any address, or half of that repeatedly down to `least` while the
    /// system refuses. Only one thread may call this, until it succeeds. Returns `false` on
    /// failure.
    pub fn reserve(&self, length: usize, least: usize) -> bool {
        let mut length = within_address_space_limit(length).next_multiple_of(page_size());
        while length >= least {
            if let Some(base) = pages::reserve(length, 0) {
                TAKEN.fetch_add(length, Ordering::Relaxed);
                self.adopt(base, length);
                return true;
            }
            length = (length / 2).next_multiple_of(page_size());
        }
        false
    }

    /// Reserves address space for memory of the program, which [`noted`] does not return. Otherwise as
    /// [`Region::reserve`], but a limit of the address space halves `length` only while the system
    /// refuses it.
    pub fn reserve_for_program(&self, mut length: usize, least: usize) -> bool {
        while length >= least {
            if let Some(base) = pages::reserve(length, 0) {
                self.place(base, length);
                return true;
            }
            length = (length / 2).next_multiple_of(page_size());
        }
        false
    }

    /// Reserves `length` bytes at `address`, if that range is free.
    pub fn reserve_at(&self, address: usize, length: usize) -> bool {
        let mapped = if within_address_space_limit(length) == length {
            pages::reserve(length, address)
        } else {
            None
        };
        match mapped {
            Some(base) if base == address => self.adopt(base, length),
            Some(elsewhere) => {
                // SAFETY: this call created the mapping, and no other thread has its address.
                unsafe { unmap(elsewhere, length) };
                return false;
            }
            None => return false,
        }
        true
    }

    /// Uses a part of another reservation, `[base, base + length)`, which this region commits.
    #[inline]
    pub fn adopt(&self, base: usize, length: usize) {
        self.place(base, length);
        note(base, length);
    }

    #[inline]
    fn place(&self, base: usize, length: usize) {
        self.length.store(length, Ordering::Relaxed);
        self.base.store(base, Ordering::Release);
    }

    /// Uses a part of a mapped file; otherwise as [`Region::adopt`].
    #[inline]
    pub fn adopt_in_file(&self, part: Part) {
        self.in_file.store(true, Ordering::Relaxed);
        self.adopt(part.base, part.length);
    }

    /// Records that the file's pages were replaced by private memory of the process.
    #[inline]
    pub fn leave_file(&self) {
        self.in_file.store(false, Ordering::Relaxed);
    }

    /// Returns the first address; 0 before a reservation.
    #[inline]
    pub fn base(&self) -> usize {
        self.base.load(Ordering::Acquire)
    }

    /// Returns the number of bytes reserved.
    #[inline]
    pub fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes made accessible so far, from the bottom.
    #[inline]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }

    /// Returns whether the address lies in the reserved range.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base()) < self.length()
    }

    /// Makes the first `length` bytes readable and writable. Returns `false` if they are not
    /// reserved or if the system refuses.
    pub fn commit(&self, length: usize) -> bool {
        let before = self.committed.load(Ordering::Acquire);
        if length <= before {
            return true;
        }
        let base = self.base();
        let _committing = Committing::begin();
        if base == 0 || length > self.length.load(Ordering::SeqCst) {
            return false;
        }
        let after = length.next_multiple_of(COMMIT_STEP).min(self.length());
        // SAFETY: the range lies in this region's reservation. Accessible parts stay accessible.
        if !unsafe { pages::commit(base + before, after - before) } {
            return false;
        }
        if self.in_file.load(Ordering::Relaxed) && !pages::populate(base + before, after - before) {
            // Shrinks the region, so that other callers do not repeat the slow attempt.
            self.length.fetch_min(before, Ordering::Relaxed);
            return false;
        }
        self.committed.fetch_max(after, Ordering::AcqRel);
        true
    }
}

impl Region {
    /// Gives the address space beyond the committed bytes and `more` back to the system. Returns the new length, which is
    /// the former one if another call or a commit is in progress. A region of a file keeps all. Only for regions that are
    /// committed from the bottom.
    pub fn give_back(&self, more: usize) -> usize {
        if GIVING_BACK.swap(true, Ordering::Acquire) {
            return self.length();
        }
        let length = self.give_back_alone(more);
        GIVING_BACK.store(false, Ordering::Release);
        length
    }

    fn give_back_alone(&self, more: usize) -> usize {
        let before = self.length();
        let kept = (self.committed() + more).next_multiple_of(page_size());
        if kept >= before || self.in_file.load(Ordering::Relaxed) {
            return before;
        }
        self.length.store(kept, Ordering::SeqCst);
        if !commits_have_ended() {
            // Such a call may have read the former length, and what it commits is part of the region.
            self.length.store(before, Ordering::SeqCst);
            return before;
        }
        // A call that ended meanwhile may have committed more.
        let kept = kept.max(self.committed().next_multiple_of(page_size()));
        self.length.store(kept, Ordering::SeqCst);
        if kept < before {
            // SAFETY: the range is inaccessible, and of this region, which ends before it from now on.
            unsafe { unmap(self.base() + kept, before - kept) };
            TAKEN.fetch_sub(before - kept, Ordering::Relaxed);
            for (base, length) in &NOTED {
                if base.load(Ordering::Relaxed) == self.base() {
                    length.fetch_min(kept, Ordering::Release);
                }
            }
        }
        kept
    }

    /// Ends the region before an address: a part behind it was given back. Only for regions that other ones have adopted.
    pub fn end_before(&self, end: usize) {
        self.length
            .fetch_min(end.saturating_sub(self.base()), Ordering::SeqCst);
    }

    /// Makes `length` bytes from `offset` on readable and writable, which [`Region::committed`] does not
    /// count. Returns `false` if they are not reserved or if the system refuses.
    pub fn commit_apart(&self, offset: usize, length: usize) -> bool {
        let _committing = Committing::begin();
        let is_inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length.load(Ordering::SeqCst));
        // SAFETY: the range lies in this region's reservation. Accessible parts stay accessible.
        is_inside && unsafe { pages::commit(self.base() + offset, length) }
    }

    /// Commits the first `length` bytes, and gives those from `from` on their pages, so that the first
    /// write to each need not. Not for hooks: may take as long as many page faults.
    pub fn commit_with_pages(&self, from: usize, length: usize) {
        let length = length.min(self.length());
        let from = from / page_size() * page_size();
        if from < length && self.commit(length) {
            // Without pages, the first write to each takes longer.
            let _ = pages::populate(self.base() + from, length - from);
        }
    }
}

/// Plimsoll's permanent memory: base and length of each range, in the order of registration.
static NOTED: [(AtomicUsize, AtomicUsize); 64] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64];

/// Registers permanent memory as Plimsoll's own. If the table is full, the memory counts as the
/// program's.
#[inline]
pub fn note(base: usize, length: usize) {
    for (noted, its_length) in &NOTED {
        let taken = noted.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            its_length.store(length, Ordering::Release);
            return;
        }
    }
}

/// Returns the registered ranges. They may contain each other.
#[inline]
pub fn noted() -> impl Iterator<Item = Range<usize>> {
    NOTED.iter().filter_map(|(base, length)| {
        let length = length.load(Ordering::Acquire);
        let base = base.load(Ordering::Relaxed);
        (length > 0).then_some(base..base + length)
    })
}

/// Maps pages as [`map`], unless they would take too much of a limited address space.
pub fn map_within_limit(length: usize) -> Option<usize> {
    if within_address_space_limit(length) < length {
        return None;
    }
    let mapped = map(length)?;
    TAKEN.fetch_add(length, Ordering::Relaxed);
    Some(mapped)
}

/// Maps new private pages that are readable, writable and zero, without overcommit accounting.
/// Returns `None` if the system refuses.
#[inline]
pub fn map(length: usize) -> Option<usize> {
    pages::map(length)
}
