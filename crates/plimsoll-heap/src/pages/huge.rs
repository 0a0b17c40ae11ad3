//! Huge pages of the system, whose first use takes one page fault in place of 512.
//!
//! From some page on, the heap takes memory in whole huge pages, and returns it so as long as it can. If
//! only parts of huge pages are left to return, it *breaks* one: from then on the system has small pages
//! there, until all of them are with the system.

use crate::size_class::PAGE;

/// The number of pages of a huge page: 2 MiB.
pub(super) const HUGE: u32 = (2 << 20) / PAGE as u32;

/// The number of pages in use from which on the heap has huge pages: in smaller heaps, the unused part
/// of the last one would be too much.
const LEAST_IN_USE: u64 = 2 * HUGE as u64;

/// The number of huge pages of the largest heap.
const CHUNKS: usize = (1 << 40) / (2 << 20);

/// The maximum number of broken huge pages: each is a mapping for the system, which has a limit of those.
const MAX_BROKEN: u32 = 8192;

/// A change of the pages with which the system backs a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The system may use a huge page from the page on.
    Mend(u32),
    /// The system has to use small pages.
    Break(u32),
}

/// The part of the heap that has huge pages.
pub(super) struct HugePages {
    /// Its first page, a multiple of [`HUGE`]; `u32::MAX` if the system refuses.
    first: Option<u32>,
    /// A bit for each broken huge page.
    broken: [u64; CHUNKS / 64],
    number_of_broken: u32,
}

impl HugePages {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            broken: [0; CHUNKS / 64],
            number_of_broken: 0,
        }
    }

    /// Decides where the part begins, behind the pages up to `top`, as soon as enough pages are in
    /// use. `allow` allows huge pages from a page on.
    pub(super) fn begin(&mut self, in_use: u64, top: u64, allow: impl FnOnce(u32) -> bool) {
        if self.first.is_none() && in_use >= LEAST_IN_USE {
            let first = (top as u32).next_multiple_of(HUGE);
            self.first = Some(if allow(first) { first } else { u32::MAX });
        }
    }

    /// Returns whether a page is part of a huge page that is not broken.
    fn has(&self, page: u32) -> bool {
        self.first.is_some_and(|first| page >= first) && !self.is_broken(page)
    }

    fn is_broken(&self, page: u32) -> bool {
        let (word, bit) = bit_of(page);
        self.broken[word] & bit != 0
    }

    /// Returns the pages that have memory as soon as `[start, end)` has, a part of the released run
    /// `run`. Mends broken huge pages of that part which are in the run as a whole.
    pub(super) fn around(
        &mut self,
        (start, end): (u32, u32),
        run: (u32, u32),
        mut apply: impl FnMut(Change) -> bool,
    ) -> (u32, u32) {
        if self.number_of_broken > 0 {
            for chunk in (start - start % HUGE..end).step_by(HUGE as usize) {
                let is_whole = chunk >= run.0 && chunk + HUGE <= run.1;
                if is_whole && self.is_broken(chunk) && apply(Change::Mend(chunk)) {
                    let (word, bit) = bit_of(chunk);
                    self.broken[word] &= !bit;
                    self.number_of_broken -= 1;
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
        apply: impl FnOnce(Change) -> bool,
    ) -> (u32, u32) {
        let in_part = self.first.unwrap_or(u32::MAX);
        let upper = first.saturating_add(most);
        if first < in_part {
            return (first, end.min(in_part).min(upper));
        }
        let chunk = first - first % HUGE;
        let in_chunk = (first, end.min(chunk + HUGE).min(upper));
        if self.is_broken(first) {
            return in_chunk;
        }
        let start = first.next_multiple_of(HUGE).min(end);
        let (whole, pages) = (end - start, (end - start).min(most));
        if whole >= HUGE {
            return (start, start + pages - pages % HUGE);
        }
        if self.number_of_broken == MAX_BROKEN || !apply(Change::Break(chunk)) {
            return (first, first);
        }
        let (word, bit) = bit_of(chunk);
        self.broken[word] |= bit;
        self.number_of_broken += 1;
        in_chunk
    }
}

/// Returns the place of a page's huge page in the bits.
fn bit_of(page: u32) -> (usize, u64) {
    let chunk = (page / HUGE) as usize;
    (chunk / 64, 1 << (chunk % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(first: u32) -> Box<HugePages> {
        let mut pages = Box::new(HugePages::new());
        pages.first = Some(first);
        pages
    }

    fn never(change: Change) -> bool {
        panic!("{change:?}")
    }

    #[test]
    fn huge_pages_begin_behind_the_pages_in_use() {
        let mut pages = Box::new(HugePages::new());
        let all = (0, 100_000);
        pages.begin(LEAST_IN_USE - 1, 5000, |_| panic!("too early"));
        assert_eq!(pages.around((5000, 5001), all, never), (5000, 5001));
        pages.begin(LEAST_IN_USE, 5000, |first| {
            assert_eq!(first, 5120);
            true
        });
        pages.begin(LEAST_IN_USE, 9000, |_| panic!("only once"));
        assert_eq!(pages.around((5000, 5001), all, never), (5000, 5001));
        assert_eq!(pages.around((5000, 5121), all, never), (5000, 5376));
        assert_eq!(pages.around((5121, 5122), all, never), (5120, 5376));
        assert_eq!(pages.around((5376, 5632), all, never), (5376, 5632));
    }

    #[test]
    fn whole_huge_pages_are_returned_before_parts() {
        let mut pages = begun(512);
        assert_eq!(pages.releasable((3, 500), 100, never), (3, 103));
        assert_eq!(pages.releasable((3, 600), 1000, never), (3, 512));
        assert_eq!(pages.releasable((512, 1100), 1000, never), (512, 1024));
        assert_eq!(pages.releasable((513, 1100), 1000, never), (768, 1024));
        // Too few for a whole one, which is there: it is not broken for that.
        assert_eq!(pages.releasable((513, 1100), 255, never), (768, 768));
    }

    #[test]
    fn a_huge_page_is_broken_for_its_parts_and_mended_when_it_is_returned() {
        let mut pages = begun(512);
        let refused = pages.releasable((513, 700), 1000, |_| false);
        assert_eq!(refused, (513, 513));
        let broken = pages.releasable((513, 800), 1000, |change| change == Change::Break(512));
        assert_eq!(broken, (513, 768));
        assert_eq!(pages.releasable((700, 1023), 9, never), (700, 709));
        assert_eq!(pages.around((520, 530), (513, 768), never), (520, 530));
        assert_eq!(pages.around((520, 530), (512, 767), never), (520, 530));
        let mended = pages.around((520, 530), (512, 768), |change| change == Change::Mend(512));
        assert_eq!(mended, (512, 768));
        assert_eq!(pages.number_of_broken, 0);
    }

    #[test]
    fn without_huge_pages_any_page_is_returned() {
        let mut pages = Box::new(HugePages::new());
        pages.begin(LEAST_IN_USE, 0, |_| false);
        assert_eq!(pages.around((5, 600), (0, 1000), never), (5, 600));
        assert_eq!(pages.releasable((5, 600), 1000, never), (5, 600));
    }
}
