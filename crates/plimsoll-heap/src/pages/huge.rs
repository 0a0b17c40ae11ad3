//! Huge pages of the system, whose first use takes one page fault in place of 512.
//!
//! A released huge page that is to have small spans or short blocks becomes *huge* as a whole: all of it
//! has memory from its first use on. Long blocks have small pages, since programs often use only a part of
//! one. The heap returns whole huge pages as long as it can. If only parts are left to return, it *breaks* one:
//! the system has small pages there from then on.

use crate::size_class::PAGE;

/// The number of pages of a huge page: 2 MiB.
pub(super) const HUGE: u32 = (2 << 20) / PAGE as u32;

/// The number of pages in use from which on the heap has huge pages: in smaller heaps, the unused part
/// of the last one would be too much.
const LEAST_IN_USE: u64 = 2 * HUGE as u64;

/// The number of pages from which on a block is long: 256 KiB.
pub(super) const LONG: u32 = HUGE / 8;

/// The number of places for huge pages in the largest heap.
const PLACES: usize = (1 << 40) / (2 << 20);

/// The maximum number of huge pages: one between others is two mappings more for the system, which has a
/// limit of those. They are 32 GiB.
const MAX_HUGE: u32 = 16 * 1024;

/// A change of the pages with which the system backs a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The system may use a huge page, from this page on.
    Allow(u32),
    /// The system has to use small pages.
    Break(u32),
}

/// The huge pages of the heap.
pub(super) struct HugePages {
    /// A bit for each place that has one.
    bits: [u64; PLACES / 64],
    number: u32,
}

/// Pages that are about to have memory: a part of a released run.
pub(super) struct Wanted {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The first page of the run, and the one behind it.
    pub(super) run: (u32, u32),
    /// The number of pages in use.
    pub(super) in_use: u64,
    /// Whether the pages are for a long block.
    pub(super) is_long: bool,
}

impl HugePages {
    pub(super) const fn new() -> Self {
        Self {
            bits: [0; PLACES / 64],
            number: 0,
        }
    }

    fn has(&self, page: u32) -> bool {
        let (word, bit) = bit_of(page);
        self.bits[word] & bit != 0
    }

    fn change(&mut self, change: Change, apply: &mut impl FnMut(Change) -> bool) -> bool {
        if !apply(change) {
            return false;
        }
        let (page, number) = match change {
            Change::Allow(page) => (page, self.number + 1),
            Change::Break(page) => (page, self.number - 1),
        };
        let (word, bit) = bit_of(page);
        self.bits[word] ^= bit;
        self.number = number;
        true
    }

    /// Returns the pages that have memory as soon as the wanted ones have, after it has chosen their
    /// kind. `apply` asks the system for them, and returns `false` if that is in vain.
    pub(super) fn around(
        &mut self,
        wanted: &Wanted,
        mut apply: impl FnMut(Change) -> bool,
    ) -> (u32, u32) {
        let (start, end) = (wanted.start, wanted.end);
        let may_have = !wanted.is_long && wanted.in_use >= LEAST_IN_USE;
        if wanted.is_long && self.number > 0 || may_have {
            for place in (start - start % HUGE..end).step_by(HUGE as usize) {
                let is_whole = place >= wanted.run.0 && place + HUGE <= wanted.run.1;
                if wanted.is_long && self.has(place) {
                    self.change(Change::Break(place), &mut apply);
                } else if may_have && is_whole && self.number < MAX_HUGE && !self.has(place) {
                    self.change(Change::Allow(place), &mut apply);
                }
            }
        }
        let start = match self.has(start) {
            true => start - start % HUGE,
            false => start,
        };
        let end = match self.has(end - 1) {
            true => end.next_multiple_of(HUGE),
            false => end,
        };
        (start, end)
    }

    /// Returns the part of the idle run `[first, end)` to return to the system next, of at most `most`
    /// pages: whole huge pages, or else a part of one, which it breaks.
    pub(super) fn releasable(
        &mut self,
        (first, end): (u32, u32),
        most: u32,
        mut apply: impl FnMut(Change) -> bool,
    ) -> (u32, u32) {
        let upper = end.min(first.saturating_add(most));
        if !self.has(first) {
            let next = first - first % HUGE + HUGE;
            let mut places = (next..upper).step_by(HUGE as usize);
            return (
                first,
                places.find(|&place| self.has(place)).unwrap_or(upper),
            );
        }
        let start = first.next_multiple_of(HUGE).min(end);
        if end - start >= HUGE {
            let pages = (end - start).min(most);
            return (start, start + pages - pages % HUGE);
        }
        let place = first - first % HUGE;
        if !self.change(Change::Break(place), &mut apply) {
            return (first, first);
        }
        (first, upper.min(place + HUGE))
    }
}

/// Returns the place of a page's huge page in the bits.
fn bit_of(page: u32) -> (usize, u64) {
    let place = (page / HUGE) as usize;
    (place / 64, 1 << (place % 64))
}

/// Returns the part of a run that consists of whole pages of the system, each of which may be several of the heap's:
/// the system releases no parts. The part is empty if its start is not below its end.
pub(super) fn whole_system_pages(start: u32, end: u32, system_page: usize) -> (u32, u32) {
    let pages = (system_page / PAGE).max(1) as u32;
    (start.next_multiple_of(pages), end / pages * pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_of_the_system_are_released() {
        assert_eq!(whole_system_pages(3, 7, 4 << 10), (3, 7));
        assert_eq!(whole_system_pages(3, 7, 16 << 10), (4, 6));
        assert_eq!(whole_system_pages(3, 17, 64 << 10), (8, 16));
        let (start, end) = whole_system_pages(3, 7, 64 << 10);
        assert!(start >= end);
    }

    fn wanted(start: u32, end: u32, in_use: u64) -> Wanted {
        Wanted {
            start,
            end,
            run: (100, 100_000),
            in_use,
            is_long: false,
        }
    }

    fn long(start: u32, end: u32) -> Wanted {
        Wanted {
            is_long: true,
            ..wanted(start, end, LEAST_IN_USE)
        }
    }

    fn never(change: Change) -> bool {
        panic!("{change:?}")
    }

    fn with_huge(places: &[u32]) -> Box<HugePages> {
        let mut pages = Box::new(HugePages::new());
        for &place in places {
            let _ = pages.around(&wanted(place, place + 1, LEAST_IN_USE), |_| true);
            assert!(pages.has(place));
        }
        pages
    }

    #[test]
    fn a_whole_place_becomes_huge_from_enough_memory_in_use_on() {
        let mut pages = Box::new(HugePages::new());
        let small = wanted(5000, 5001, LEAST_IN_USE - 1);
        assert_eq!(pages.around(&small, never), (5000, 5001));
        // The run begins within the first place.
        let first = wanted(200, 201, LEAST_IN_USE);
        assert_eq!(pages.around(&first, never), (200, 201));
        let refused = pages.around(&wanted(5000, 5001, LEAST_IN_USE), |_| false);
        assert_eq!(refused, (5000, 5001));
        let mut changes = Vec::new();
        let across = pages.around(&wanted(5000, 5121, LEAST_IN_USE), |change| {
            changes.push(change);
            true
        });
        assert_eq!(across, (4864, 5376));
        assert_eq!(changes, [Change::Allow(4864), Change::Allow(5120)]);
        // Once huge, whatever is in use.
        assert_eq!(pages.around(&wanted(5121, 5122, 0), never), (5120, 5376));
    }

    #[test]
    fn long_blocks_have_small_pages() {
        let mut pages = with_huge(&[512]);
        assert_eq!(pages.around(&long(1000, 2000), never), (1000, 2000));
        let mut changes = Vec::new();
        let broken = pages.around(&long(700, 1500), |change| {
            changes.push(change);
            true
        });
        assert_eq!((broken, changes), ((700, 1500), vec![Change::Break(512)]));
        assert_eq!(pages.number, 0);
    }

    #[test]
    fn whole_huge_pages_are_returned_before_parts() {
        let mut pages = with_huge(&[512, 768]);
        assert_eq!(pages.releasable((3, 500), 100, never), (3, 103));
        assert_eq!(pages.releasable((3, 600), 1000, never), (3, 512));
        assert_eq!(pages.releasable((512, 1100), 1000, never), (512, 1024));
        assert_eq!(pages.releasable((513, 1100), 1000, never), (768, 1024));
        assert_eq!(pages.releasable((1024, 1100), 1000, never), (1024, 1100));
        // Too few for a whole one, which is there: it is not broken for that.
        assert_eq!(pages.releasable((513, 1100), 255, never), (768, 768));
    }

    #[test]
    fn a_huge_page_is_broken_for_its_parts() {
        let mut pages = with_huge(&[512]);
        assert_eq!(pages.releasable((513, 700), 1000, |_| false), (513, 513));
        let broken = pages.releasable((513, 800), 1000, |change| change == Change::Break(512));
        assert_eq!(broken, (513, 768));
        assert_eq!(pages.releasable((700, 1023), 9, never), (700, 709));
        assert_eq!(pages.releasable((700, 1023), 900, never), (700, 1023));
    }
}
