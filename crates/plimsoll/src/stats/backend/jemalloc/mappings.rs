//! Where jemalloc's memory is.
//!
//! What hooks have mapped is noted in a fixed table, with a store each: jemalloc maps ever larger
//! pieces, four to a doubling, and keeps them, so there are some tens of each arena. What it maps
//! for its own structures it does without the hooks; that is told by what it writes at the
//! beginning.

use std::ops::Range;

use super::Held;
use crate::primitives::{AtomicUsize, Ordering};

/// Room for as many mappings.
const MOST: usize = 8192;

/// A mapping: its end is written first, and it counts if its start is not 0.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
}

static PLACES: [Place; MOST] = [const {
    Place {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; MOST];

/// How many were noted, also if there was no place for them.
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// Called by hooks.
pub(super) fn note(range: Range<usize>) {
    let noted = NOTED.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = PLACES.get(noted) {
        place.end.store(range.end, Ordering::Relaxed);
        place.start.store(range.start, Ordering::Release);
    }
}

/// Called by hooks, before a mapping goes. jemalloc unmaps nothing but whole arenas, which the
/// program may ask for, and only of those that it has made itself, which have no hooks. What is a
/// part of a mapping is left as it is: whoever asks where memory is asks the system as well.
pub(super) fn forget(range: Range<usize>) {
    let noted = NOTED.load(Ordering::Relaxed).min(MOST);
    for place in &PLACES[..noted] {
        let is_it = place.start.load(Ordering::Relaxed) == range.start
            && place.end.load(Ordering::Relaxed) == range.end;
        if is_it {
            place.start.store(0, Ordering::Relaxed);
        }
    }
}

/// False if there were more than there is room for.
pub(super) fn visit(visit: &mut dyn FnMut(Held, Range<usize>)) -> bool {
    let noted = NOTED.load(Ordering::Relaxed);
    for place in &PLACES[..noted.min(MOST)] {
        let start = place.start.load(Ordering::Acquire);
        if start != 0 {
            visit(Held::Blocks, start..place.end.load(Ordering::Relaxed));
        }
    }
    noted <= MOST
}

/// What jemalloc's mappings for structures are multiples of, and aligned to.
const STRUCTURES: usize = 2 << 20;

/// jemalloc begins these with their length, the address of one that it had before, if it had, some
/// bits, and where in this one there is room.
pub(super) fn structures_at(address: usize, words: [usize; 4]) -> Option<usize> {
    let [length, before, _, free] = words;
    let is_whole = |bytes: usize| bytes % STRUCTURES == 0;
    let fits = length > 0 && free > address && free - address <= length;
    (is_whole(address) && is_whole(length) && is_whole(before) && fits).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No arena has the hooks in this process, so the table is this test's.
    #[test]
    fn what_was_noted_is_visited_until_it_is_forgotten_or_there_is_no_room() {
        let visited = || {
            let mut ranges = Vec::new();
            let all = visit(&mut |held, range| {
                assert_eq!(held, Held::Blocks);
                ranges.push(range);
            });
            (all, ranges)
        };
        assert_eq!(visited(), (true, vec![]));
        for at in 1..=3 {
            note(at << 21..(at << 21) + 4096);
        }
        forget(2 << 21..(2 << 21) + 4096);
        // A part of one.
        forget(3 << 21..(3 << 21) + 100);
        let left = vec![1 << 21..(1 << 21) + 4096, 3 << 21..(3 << 21) + 4096];
        assert_eq!(visited(), (true, left));
        for at in 4..=MOST {
            note(at << 21..(at << 21) + 4096);
        }
        assert_eq!((visited().0, visited().1.len()), (true, MOST - 1));
        note(1 << 40..2 << 40);
        let (all, ranges) = visited();
        assert!(!all && ranges.len() == MOST - 1);
    }

    #[test]
    fn structures_are_told_by_words_that_fit_together() {
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
