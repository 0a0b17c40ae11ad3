//! The addresses of jemalloc's memory.
//!
//! Each hook notes its mapping in a fixed table with one store. jemalloc maps ever larger pieces,
//! four for each doubling, and keeps them, so each arena has some tens. It maps its own structures
//! without the hooks; the words at their beginning identify them.

use std::ops::Range;

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::Usage;

/// The maximum number of noted mappings.
const MAX_MAPPINGS: usize = 8192;

/// A mapping. Its end is written first; the entry is valid if its start is not 0.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
}

static PLACES: [Entry; MAX_MAPPINGS] = [const {
    Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; MAX_MAPPINGS];

/// The number of noted mappings, including those that found no place.
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// Notes a mapping. Called by hooks.
pub(super) fn note(range: Range<usize>) {
    let noted = NOTED.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = PLACES.get(noted) {
        place.end.store(range.end, Ordering::Relaxed);
        place.start.store(range.start, Ordering::Release);
    }
}

/// Removes a mapping before it is unmapped. Called by hooks. jemalloc unmaps only whole arenas, at
/// the program's request, and only those that the program created, which have no hooks. An entry of
/// which only a part is unmapped stays unchanged: readers query the system for resident pages
/// anyway.
pub(super) fn forget(range: Range<usize>) {
    let noted = NOTED.load(Ordering::Relaxed).min(MAX_MAPPINGS);
    for place in &PLACES[..noted] {
        let is_it = place.start.load(Ordering::Relaxed) == range.start
            && place.end.load(Ordering::Relaxed) == range.end;
        if is_it {
            place.start.store(0, Ordering::Relaxed);
        }
    }
}

/// Visits all noted mappings. Returns false if some found no place.
pub(super) fn visit(visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
    let noted = NOTED.load(Ordering::Relaxed);
    for place in &PLACES[..noted.min(MAX_MAPPINGS)] {
        let start = place.start.load(Ordering::Acquire);
        if start != 0 {
            visit(Usage::Blocks, start..place.end.load(Ordering::Relaxed));
        }
    }
    noted <= MAX_MAPPINGS
}

/// The alignment of jemalloc's mappings for structures, of which their lengths are multiples.
const STRUCTURES: usize = 2 << 20;

/// Returns the length of jemalloc's structures at `address`, if `words` identify them. They begin
/// with their length, the address of the previous mapping or 0, some bits, and the address of free
/// space in this one.
pub(super) fn structures_at(address: usize, words: [usize; 4]) -> Option<usize> {
    let [length, before, _, free] = words;
    let is_whole = |bytes: usize| bytes % STRUCTURES == 0;
    let fits = length > 0 && free > address && free - address <= length;
    (is_whole(address) && is_whole(length) && is_whole(before) && fits).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No arena has the hooks in this process, so this test owns the table.
    #[test]
    fn noted_mappings_are_visited_until_they_are_removed_or_the_table_is_full() {
        let visited = || {
            let mut ranges = Vec::new();
            let all = visit(&mut |held, range| {
                assert_eq!(held, Usage::Blocks);
                ranges.push(range);
            });
            (all, ranges)
        };
        assert_eq!(visited(), (true, vec![]));
        for at in 1..=3 {
            note(at << 21..(at << 21) + 4096);
        }
        forget(2 << 21..(2 << 21) + 4096);
        // A part of a mapping.
        forget(3 << 21..(3 << 21) + 100);
        let left = vec![1 << 21..(1 << 21) + 4096, 3 << 21..(3 << 21) + 4096];
        assert_eq!(visited(), (true, left));
        for at in 4..=MAX_MAPPINGS {
            note(at << 21..(at << 21) + 4096);
        }
        assert_eq!((visited().0, visited().1.len()), (true, MAX_MAPPINGS - 1));
        note(1 << 40..2 << 40);
        let (all, ranges) = visited();
        assert!(!all && ranges.len() == MAX_MAPPINGS - 1);
    }

    #[test]
    fn structures_are_recognised_by_words_that_fit_together() {
        const AT: usize = 0x7f00_0020_0000;
        let words = [2 << 20, 0, 7, AT + 4096];
        assert_eq!(structures_at(AT, words), Some(2 << 20));
        assert_eq!(structures_at(AT + 4096, words), None);
        let broken = [
            [0, 0, 7, AT + 4096],
            [(2 << 20) + 1, 0, 7, AT + 4096],
            [2 << 20, 8, 7, AT + 4096],
            [2 << 20, 0, 7, AT],
            [2 << 20, 0, 7, AT + (2 << 20) + 1],
            [0; 4],
        ];
        for words in broken {
            assert_eq!(structures_at(AT, words), None, "{words:?}");
        }
    }
}
