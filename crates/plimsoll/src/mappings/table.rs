//! Which addresses the program has mapped, and who mapped them.
//!
//! A table of fixed size, without locks. A record is a range of whole pages in one word, so that it
//! is made shorter in one step, whoever else is about to cut another part off; and beside it, a
//! note, which does not change while there is a record. Records do not overlap: before something is
//! mapped at a place, what was there was cut out. A place is
//!
//! ```text
//! EMPTY --(insert)--> CLAIMED --note, bit--> a range --(cut)--> a shorter one
//!   ^                    ^                      |
//!   +------- bit --------+---------(cut)--------+
//! ```
//!
//! and whoever has claimed it is the only one who touches its note and its bit. Nobody waits for
//! that: to others, it is no record.
//!
//! A record is put where its start says, if there is room, so that one which is unmapped as it was
//! mapped is found at once. All others are found by the bits of those places that have a record;
//! words of bits that were never used are passed over.
//!
//! What is behind a part that is cut out of the middle becomes a record of its own a moment after
//! it is no longer in the first one. Whoever looks meanwhile for what lies there looks again, some
//! times; if the other one is kept from going on, what is unmapped of it stays recorded.

use std::ops::Range;

use crate::os::region::PAGE;
use crate::primitives::{AtomicU64, AtomicUsize, Ordering};
use crate::stack::Bucket;

/// How many records there can be: as many as the kernel lets a process have mappings, unless that
/// was raised.
const PLACES: usize = 1 << 16;

/// Places in a set: those that a start is looked for in, in one of two sets.
const WAYS: usize = 8;
const SETS: usize = PLACES / WAYS;

const WORD_BITS: usize = 64;
const WORDS: usize = PLACES / WORD_BITS;

/// See [`Word`].
const LENGTH_BITS: u32 = 29;
const LENGTHS: u64 = (1 << LENGTH_BITS) - 1;

/// The longest record. What is longer is several.
const LONGEST: usize = LENGTHS as usize * PAGE;

/// The end of what a program may map unless it asks for more by a hint: 47 bits of addresses.
pub(super) const LIMIT: usize = 1 << 47;

/// A range: the number of its first page, and how many there are. No length is no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const EMPTY: Self = Self(0);
    const CLAIMED: Self = Self(1 << LENGTH_BITS);

    /// At most [`LONGEST`] bytes below [`LIMIT`].
    fn of(range: &Range<usize>) -> Self {
        let (start, length) = (range.start / PAGE, range.len() / PAGE);
        Self((start as u64) << LENGTH_BITS | length as u64)
    }

    fn range(self) -> Option<Range<usize>> {
        let length = (self.0 & LENGTHS) as usize * PAGE;
        let start = (self.0 >> LENGTH_BITS) as usize * PAGE;
        (length != 0).then_some(start..start + length)
    }

    fn begins_at(self, start: usize) -> bool {
        self.0 >> LENGTH_BITS == (start / PAGE) as u64 && self.0 & LENGTHS != 0
    }
}

/// What is known of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) bucket: Bucket,
    /// Whether the allocator below the door has mapped it.
    pub(super) of_allocator: bool,
}

impl Note {
    fn to_bits(self) -> u64 {
        u64::from(self.bucket.0) | u64::from(self.of_allocator) << 32
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            bucket: Bucket(bits as u32),
            of_allocator: bits >> 32 != 0,
        }
    }
}

struct Place {
    word: AtomicU64,
    note: AtomicU64,
}

/// What was cut out of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) range: Range<usize>,
    pub(super) note: Note,
    pub(super) left: Left,
}

/// What is left of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// What is before or behind.
    One,
    /// What is before and what is behind.
    Both,
    /// There was no room for what is behind, which was cut out as well.
    NoRoom,
}

/// See the module documentation.
pub(super) struct Mappings {
    places: [Place; PLACES],
    /// A bit for each place with a record, or about to have one.
    used: [AtomicU64; WORDS],
    /// A bit for each word of those that was ever not 0.
    ever: [AtomicU64; WORDS / WORD_BITS],
    /// How many places are claimed, or about to be.
    taken: AtomicUsize,
    /// How often a record was about to become two, and how often it has.
    splits_begun: AtomicU64,
    splits_ended: AtomicU64,
}

/// How often whoever cuts looks again.
const MOST_LOOKS: usize = 64;

impl Mappings {
    pub(super) const fn new() -> Self {
        Self {
            places: [const {
                Place {
                    word: AtomicU64::new(Word::EMPTY.0),
                    note: AtomicU64::new(0),
                }
            }; PLACES],
            used: [const { AtomicU64::new(0) }; WORDS],
            ever: [const { AtomicU64::new(0) }; WORDS / WORD_BITS],
            taken: AtomicUsize::new(0),
            splits_begun: AtomicU64::new(0),
            splits_ended: AtomicU64::new(0),
        }
    }

    /// Enters a range of whole pages. False if there is no room for all of it; then there is
    /// nothing of it.
    pub(super) fn insert(&self, range: &Range<usize>, note: Note) -> bool {
        if range.end > LIMIT {
            return false;
        }
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(LONGEST));
            if !self.insert_one(&(start..end), note) {
                self.cut(&(range.start..start), |_| {});
                return false;
            }
            start = end;
        }
        true
    }

    fn insert_one(&self, range: &Range<usize>, note: Note) -> bool {
        // Who is counted here finds a place, but for others that come and go meanwhile.
        if self.taken.fetch_add(1, Ordering::Relaxed) >= PLACES {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let sets = sets_of(range.start);
        let first = sets[1].start;
        let near = sets.into_iter().flatten();
        let anywhere = (first..PLACES).chain(0..first);
        let claimed = near.chain(anywhere).find(|&at| {
            let word = &self.places[at].word;
            word.load(Ordering::Relaxed) == Word::EMPTY.0
                && word
                    .compare_exchange(
                        Word::EMPTY.0,
                        Word::CLAIMED.0,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
        });
        let Some(at) = claimed else {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return false;
        };
        self.places[at]
            .note
            .store(note.to_bits(), Ordering::Relaxed);
        let (word, bit) = (at / WORD_BITS, 1 << (at % WORD_BITS));
        let (ever, ever_bit) = (word / WORD_BITS, 1 << (word % WORD_BITS));
        if self.ever[ever].load(Ordering::Relaxed) & ever_bit == 0 {
            self.ever[ever].fetch_or(ever_bit, Ordering::Relaxed);
        }
        self.used[word].fetch_or(bit, Ordering::Relaxed);
        // Whoever sees the record sees its bits and its note. Whoever is to see the record has
        // learned of the mapping from who made it, and so after this.
        self.places[at]
            .word
            .store(Word::of(range).0, Ordering::Release);
        true
    }

    /// Whether a record begins there.
    pub(super) fn begins_at(&self, start: usize) -> bool {
        self.place_of(start).is_some()
    }

    /// The record that has that address.
    pub(super) fn note_of(&self, address: usize) -> Option<Note> {
        let mut found = None;
        self.for_each(|range, note| {
            if range.contains(&address) {
                found = Some(note);
            }
        });
        found
    }

    /// The place of a record that begins there, if it lies where its start says.
    fn place_of(&self, start: usize) -> Option<usize> {
        let mut places = sets_of(start).into_iter().flatten();
        places.find(|&at| Word(self.places[at].word.load(Ordering::Acquire)).begins_at(start))
    }

    /// Cuts a range of whole pages out of all records, and says what that did.
    ///
    /// A failed try to make two of a record counts as a split as well, for whoever looks meanwhile:
    /// that costs a look.
    pub(super) fn cut(&self, range: &Range<usize>, mut did: impl FnMut(Cut)) {
        if range.is_empty() {
            return;
        }
        if let Some(at) = self.place_of(range.start) {
            let record = Word(self.places[at].word.load(Ordering::Acquire)).range();
            let is_all = record.is_some_and(|record| record.end >= range.end);
            self.cut_one(at, range, &mut did);
            if is_all {
                return;
            }
        }
        for _ in 0..MOST_LOOKS {
            let ended = self.splits_ended.load(Ordering::SeqCst);
            let mut own = 0;
            self.each_used(|at| own += u64::from(self.cut_one(at, range, &mut did)));
            if self.splits_begun.load(Ordering::SeqCst) == ended + own {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Cuts a range out of the record at a place. Whether that began to make two of it.
    fn cut_one(&self, at: usize, range: &Range<usize>, did: &mut impl FnMut(Cut)) -> bool {
        let place = &self.places[at];
        loop {
            let before = place.word.load(Ordering::Acquire);
            let Some(record) = Word(before).range() else {
                return false;
            };
            let gone = record.start.max(range.start)..record.end.min(range.end);
            if gone.is_empty() {
                return false;
            }
            let note = Note::from_bits(place.note.load(Ordering::Relaxed));
            let (left, right) = (record.start..gone.start, gone.end..record.end);
            let cut = |left| Cut {
                range: gone.clone(),
                note,
                left,
            };
            // If somebody else has cut another part off meanwhile, there is another try.
            match (left.is_empty(), right.is_empty()) {
                (true, true) => {
                    if self.replace(at, before, Word::CLAIMED) {
                        let bit: u64 = 1 << (at % WORD_BITS);
                        self.used[at / WORD_BITS].fetch_and(!bit, Ordering::Relaxed);
                        place.word.store(Word::EMPTY.0, Ordering::Release);
                        self.taken.fetch_sub(1, Ordering::Relaxed);
                        did(cut(Left::Nothing));
                        return false;
                    }
                }
                (false, false) => {
                    self.splits_begun.fetch_add(1, Ordering::SeqCst);
                    let is_cut = self.replace(at, before, Word::of(&left));
                    let has_room = is_cut && self.insert_one(&right, note);
                    self.splits_ended.fetch_add(1, Ordering::SeqCst);
                    if is_cut {
                        did(if has_room {
                            cut(Left::Both)
                        } else {
                            Cut {
                                range: gone.start..record.end,
                                ..cut(Left::NoRoom)
                            }
                        });
                        return true;
                    }
                }
                (false, true) | (true, false) => {
                    let rest = if left.is_empty() { &right } else { &left };
                    if self.replace(at, before, Word::of(rest)) {
                        did(cut(Left::One));
                        return false;
                    }
                }
            }
        }
    }

    fn replace(&self, at: usize, before: u64, after: Word) -> bool {
        let word = &self.places[at].word;
        word.compare_exchange(before, after.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// All records.
    pub(super) fn for_each(&self, mut visit: impl FnMut(Range<usize>, Note)) {
        self.each_used(|at| {
            let place = &self.places[at];
            if let Some(range) = Word(place.word.load(Ordering::Acquire)).range() {
                visit(range, Note::from_bits(place.note.load(Ordering::Relaxed)));
            }
        });
    }

    fn each_used(&self, mut visit: impl FnMut(usize)) {
        for (group, ever) in self.ever.iter().enumerate() {
            each_bit(ever.load(Ordering::Relaxed), |bit| {
                let word = group * WORD_BITS + bit;
                each_bit(self.used[word].load(Ordering::Relaxed), |bit| {
                    visit(word * WORD_BITS + bit);
                });
            });
        }
    }
}

fn each_bit(mut word: u64, mut visit: impl FnMut(usize)) {
    while word != 0 {
        visit(word.trailing_zeros() as usize);
        word &= word - 1;
    }
}

/// The two sets of places for a record that begins there. By the first, records that are near each
/// other are so in the table as well; by the second, many small ones do not meet.
fn sets_of(start: usize) -> [Range<usize>; 2] {
    let mixed = (start as u64 / PAGE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    [start >> 20, mixed as usize].map(|set| {
        let first = set % SETS * WAYS;
        first..first + WAYS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(bucket: u32) -> Note {
        Note {
            bucket: Bucket(bucket),
            of_allocator: bucket % 2 == 1,
        }
    }

    fn pages(range: Range<usize>) -> Range<usize> {
        range.start * PAGE..range.end * PAGE
    }

    fn all(mappings: &Mappings) -> Vec<(Range<usize>, u32)> {
        let mut all = Vec::new();
        mappings.for_each(|range, note| {
            all.push((range.start / PAGE..range.end / PAGE, note.bucket.0));
        });
        all.sort_by_key(|(range, _)| range.start);
        all
    }

    fn cut(mappings: &Mappings, range: Range<usize>) -> Vec<(Range<usize>, Left)> {
        let mut cuts = Vec::new();
        mappings.cut(&pages(range), |cut| {
            cuts.push((cut.range.start / PAGE..cut.range.end / PAGE, cut.left));
        });
        cuts.sort_by_key(|(range, _)| range.start);
        cuts
    }

    #[test]
    fn a_record_is_cut_at_its_head_its_tail_and_in_its_middle() {
        static MAPPINGS: Mappings = Mappings::new();
        let mappings = &MAPPINGS;
        assert!(mappings.insert(&pages(100..200), note(7)));
        assert_eq!(cut(mappings, 50..100), []);
        assert_eq!(cut(mappings, 90..110), [(100..110, Left::One)]);
        assert_eq!(cut(mappings, 190..210), [(190..200, Left::One)]);
        assert_eq!(cut(mappings, 140..150), [(140..150, Left::Both)]);
        assert_eq!(all(mappings), [(110..140, 7), (150..190, 7)]);
        assert!(mappings.begins_at(150 * PAGE));
        assert_eq!(mappings.note_of(189 * PAGE + 5), Some(note(7)));
        assert_eq!(mappings.note_of(145 * PAGE), None);
        assert!(mappings.insert(&pages(140..150), note(8)));
        let rest = [
            (130..140, Left::One),
            (140..150, Left::Nothing),
            (150..160, Left::One),
        ];
        assert_eq!(cut(mappings, 130..160), rest);
        assert_eq!(all(mappings), [(110..130, 7), (160..190, 7)]);
        cut(mappings, 0..1000);
        assert_eq!(all(mappings), []);
        assert!(
            mappings
                .used
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == 0)
        );
    }

    #[test]
    fn the_longest_range_is_several_and_goes_at_once() {
        static MAPPINGS: Mappings = Mappings::new();
        let mappings = &MAPPINGS;
        let whole = PAGE..LIMIT;
        assert!(mappings.insert(&whole, note(3)));
        let found = all(mappings);
        assert_eq!(found.len(), LIMIT.div_ceil(LONGEST));
        assert_eq!(found.first().unwrap().0.start, 1);
        assert_eq!(found.last().unwrap().0.end, LIMIT / PAGE);
        let mut bytes = 0;
        mappings.cut(&whole, |cut| bytes += cut.range.len());
        assert_eq!((bytes, all(mappings)), (whole.len(), vec![]));
        assert!(!mappings.insert(&(LIMIT..LIMIT + PAGE), note(3)));
    }

    /// Also that none is overlooked in a table with no room.
    #[test]
    fn a_full_table_refuses_and_has_room_again() {
        static MAPPINGS: Mappings = Mappings::new();
        let mappings = &MAPPINGS;
        let at = |number: usize| pages(2 * number + 1..2 * number + 2);
        for number in 0..PLACES {
            assert!(mappings.insert(&at(number), note(number as u32)));
        }
        assert!(!mappings.insert(&at(PLACES), note(1)));
        assert_eq!(all(mappings).len(), PLACES);
        // One is to become two.
        assert_eq!(cut(mappings, 1..2), [(1..2, Left::Nothing)]);
        assert!(mappings.insert(&pages(1_000_000..1_000_009), note(5)));
        let middle = cut(mappings, 1_000_003..1_000_005);
        assert_eq!(middle, [(1_000_003..1_000_009, Left::NoRoom)]);
        assert_eq!(mappings.note_of(1_000_002 * PAGE), Some(note(5)));
        let mut gone = 0;
        mappings.cut(&pages(0..LIMIT / PAGE), |_| gone += 1);
        assert_eq!((gone, all(mappings)), (PLACES, vec![]));
        assert!(mappings.insert(&at(0), note(1)));
    }

    /// Random work beside a list of pages, which has to be the same after each step.
    #[test]
    fn what_is_recorded_is_what_a_list_of_pages_says() {
        const PAGES: usize = 300;
        static MAPPINGS: Mappings = Mappings::new();
        let mappings = &MAPPINGS;
        let mut model = [0u32; PAGES];
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        for step in 1..5000u32 {
            let start = next(PAGES - 1);
            let range = start..start + 1 + next((PAGES - start).min(60));
            let mut gone = 0;
            mappings.cut(&pages(range.clone()), |cut| gone += cut.range.len() / PAGE);
            let there = model[range.clone()].iter().filter(|&&page| page != 0);
            assert_eq!(gone, there.count(), "{step}");
            let number = if next(2) == 0 { step } else { 0 };
            if number != 0 {
                assert!(mappings.insert(&pages(range.clone()), note(number)));
            }
            model[range].fill(number);
            let mut found = [0; PAGES];
            for (range, number) in all(mappings) {
                for page in range {
                    assert_eq!(std::mem::replace(&mut found[page], number), 0, "twice");
                }
            }
            assert_eq!(found, model, "{step}");
        }
    }

    /// Each has addresses of its own, as threads of a program have; the heads and tails of one
    /// record are cut by two at once.
    #[test]
    fn threads_that_map_and_cut_leave_nothing_and_lose_nothing() {
        static MAPPINGS: Mappings = Mappings::new();
        let mappings = &MAPPINGS;
        for round in 0..200 {
            let shared = pages(10..1010);
            assert!(mappings.insert(&shared, note(1)));
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|thread: usize| {
                        scope.spawn(move || {
                            let mut gone = 0;
                            // From both ends.
                            for step in 0..250 {
                                let page = if thread % 2 == 0 {
                                    10 + 2 * step + thread / 2
                                } else {
                                    1009 - 2 * step - thread / 2
                                };
                                let range = pages(page..page + 1);
                                mappings.cut(&range, |cut| gone += cut.range.len());
                                let own = 10_000 * (thread + 1) + step;
                                assert!(mappings.insert(&pages(own..own + 1), note(2)));
                                mappings.cut(&pages(own..own + 1), |cut| {
                                    assert_eq!(cut.left, Left::Nothing);
                                });
                            }
                            gone
                        })
                    })
                    .collect();
                let gone: usize = threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .sum();
                // A piece that is on its way to its place may be overlooked by who cuts it then, if
                // that takes too long.
                let left: usize = all(mappings).iter().map(|(range, _)| range.len()).sum();
                assert_eq!(gone / PAGE + left, 1000, "{round}");
                mappings.cut(&shared, |_| {});
            });
            assert_eq!(all(mappings), [], "{round}");
        }
    }
}
