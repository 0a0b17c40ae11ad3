//! An index of free runs by their length, which finds a run that is long enough in a few steps.
//!
//! Lengths below 64 pages have a bin each. From there on, each doubling has 8 bins. All runs of a higher
//! bin are long enough, so only the first bin of a search is walked.

use super::spans::{Id, Span, Spans};

const EXACT: u32 = 64;
const PER_DOUBLING: u32 = 8;

/// Enough for 2^28 pages.
const BINS: usize = (EXACT + 22 * PER_DOUBLING) as usize;

/// The maximum number of runs of the first bin that a search looks at before it takes one of a higher bin.
const MAX_WALK: usize = 16;

/// Free runs in one state.
pub(super) struct Bins {
    heads: [Option<Id>; BINS],
    occupied: [u64; BINS.div_ceil(64)],
}

impl Bins {
    pub(super) const fn new() -> Self {
        Self {
            heads: [None; BINS],
            occupied: [0; BINS.div_ceil(64)],
        }
    }

    fn of(pages: u32) -> usize {
        if pages < EXACT {
            return pages as usize;
        }
        let doubling = pages.ilog2() - EXACT.ilog2();
        let eighth = (pages >> (pages.ilog2() - 3)) % PER_DOUBLING;
        (EXACT + doubling * PER_DOUBLING + eighth) as usize
    }

    /// Adds a free run.
    pub(super) fn insert(&mut self, spans: &mut Spans, id: Id) {
        let bin = Self::of(spans[id].pages);
        let head = self.heads[bin];
        spans.link(id, head);
        self.heads[bin] = Some(id);
        self.occupied[bin / 64] |= 1 << (bin % 64);
    }

    /// Removes a free run.
    pub(super) fn remove(&mut self, spans: &mut Spans, id: Id) {
        let bin = Self::of(spans[id].pages);
        if self.heads[bin] == Some(id) {
            self.heads[bin] = spans[id].next;
        }
        spans.unlink(id);
        if self.heads[bin].is_none() {
            self.occupied[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// Returns a run of at least `pages`, without removing it: a short one rather than a long one.
    pub(super) fn find(&self, spans: &Spans, pages: u32) -> Option<Id> {
        let bin = Self::of(pages);
        let is_enough = |span: &Span| span.pages >= pages;
        let walked = spans.list(self.heads[bin]).take(MAX_WALK);
        best(spans, walked, is_enough)
            .or_else(|| self.first_from(bin + 1))
            .or_else(|| best(spans, spans.list(self.heads[bin]), is_enough))
    }

    /// Returns one of the longest runs, without removing it.
    pub(super) fn longest(&self) -> Option<Id> {
        let word = self.occupied.iter().rposition(|&word| word != 0)?;
        let bin = 64 * word + self.occupied[word].ilog2() as usize;
        self.heads[bin]
    }

    fn first_from(&self, bin: usize) -> Option<Id> {
        let first = bin / 64;
        for word in first..self.occupied.len() {
            let mut bits = self.occupied[word];
            if word == first {
                bits &= u64::MAX << (bin % 64);
            }
            if bits != 0 {
                return self.heads[64 * word + bits.trailing_zeros() as usize];
            }
        }
        None
    }
}

/// Returns the shortest run that is long enough; of several, the one with the lowest address.
fn best(
    spans: &Spans,
    runs: impl Iterator<Item = Id>,
    is_enough: impl Fn(&Span) -> bool,
) -> Option<Id> {
    runs.filter(|&id| is_enough(&spans[id]))
        .min_by_key(|&id| (spans[id].pages, spans[id].first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_ascend_with_the_length() {
        let mut last = 0;
        for pages in 1..1 << 20 {
            let bin = Bins::of(pages);
            assert!(bin == last || bin == last + 1, "{pages}");
            last = bin;
        }
        assert!(Bins::of(u32::MAX >> 4) < BINS);
    }
}
