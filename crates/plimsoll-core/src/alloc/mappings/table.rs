//! The addresses that the program has mapped, and the callers that mapped them.
//!
//! A lock-free table of fixed size. A record is a range of whole pages in one word, so one
//! compare-and-swap shortens it, even while another thread cuts off another part. Beside it lies a
//! note, which never changes while the record exists. Records do not overlap: before a mapping is
//! recorded, its addresses are cut out of all other records. The states of a place:
//!
//! ```text
//! EMPTY --(insert)--> CLAIMED --note, bit--> a range --(cut)--> a shorter one
//!   ^                    ^                      |
//!   +------- bit --------+---------(cut)--------+
//! ```
//!
//! Only the thread that claimed a place touches its note and its bit. No thread waits for a claimed
//! place: to all others, it holds no record.
//!
//! The start of a record selects its place, if one is free there; so a record that is unmapped as
//! it was mapped is found immediately. All others are found by the bits of places with a record;
//! words of bits that were never used are skipped.
//!
//! A cut in the middle leaves a second piece, which becomes a record a moment after it leaves the
//! first. A concurrent search repeats its pass, up to [`MAX_LOOKS`] times. If the cutting thread is
//! suspended for that long, the unmapped part stays recorded.

use std::ops::Range;

use plimsoll_sys::os::region::PAGE;
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

use crate::stack::Bucket;

/// The maximum number of records: the kernel's default limit of mappings for a process.
const PLACES: usize = 1 << 16;

/// Places in a set; the start of a record selects two sets.
const WAYS: usize = 8;
const SETS: usize = PLACES / WAYS;

const WORD_BITS: usize = 64;
const WORDS: usize = PLACES / WORD_BITS;

/// See [`Word`].
const LENGTH_BITS: u32 = 28;
const LENGTHS: u64 = (1 << LENGTH_BITS) - 1;

/// The length of the longest record, in bytes. Longer mappings become several records.
const LONGEST: usize = LENGTHS as usize * PAGE;

/// The end of the addresses that a program gets unless it passes a hint: 48 bits on aarch64, 47 on
/// x86-64.
pub(super) const LIMIT: usize = 1 << 48;

/// A range: the number of its first page, and the number of pages. Length zero means no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const EMPTY: Self = Self(0);
    const CLAIMED: Self = Self(1 << LENGTH_BITS);

    /// Packs a range of at most [`LONGEST`] bytes below [`LIMIT`].
    fn from_range(range: &Range<usize>) -> Self {
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

/// The properties of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) bucket: Bucket,
    /// Whether the underlying allocator of the `malloc` interposition mapped it.
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

struct Entry {
    word: AtomicU64,
    note: AtomicU64,
}

/// A part that was cut out of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) range: Range<usize>,
    pub(super) note: Note,
    pub(super) remainder: Remainder,
}

/// The remainder of a record after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remainder {
    Empty,
    /// The part before the cut or the part after it.
    OnePart,
    /// The part before the cut and the part after it.
    TwoParts,
    /// The part before the cut. No place was free for the part after it, which was cut out as well.
    Truncated,
}

/// See the module documentation.
pub(super) struct Mappings {
    places: [Entry; PLACES],
    /// A bit for each place that holds a record, or is about to.
    used: [AtomicU64; WORDS],
    /// A bit for each word of `used` that was ever not 0.
    ever: [AtomicU64; WORDS / WORD_BITS],
    /// The number of places that are claimed, or about to be.
    taken: AtomicUsize,
    /// The number of splits of a record that have begun; `splits_ended` counts those that have
    /// ended.
    splits_begun: AtomicU64,
    splits_ended: AtomicU64,
}

/// The maximum number of passes in which a cut searches for a moving record.
const MAX_LOOKS: usize = 64;

impl Mappings {
    pub(super) const fn new() -> Self {
        Self {
            places: [const {
                Entry {
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

    /// Records a range of whole pages. Returns false, and leaves no part of it, if the table lacks
    /// the space.
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
        // `taken` admits at most `PLACES` threads, so a place is free, unless others claim it
        // meanwhile.
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
        // A reader that sees the record sees its bits and its note. A thread that must see the
        // record learned of the mapping from its maker, and so after this store.
        self.places[at]
            .word
            .store(Word::from_range(range).0, Ordering::Release);
        true
    }

    /// Returns whether a record begins at `start`.
    pub(super) fn begins_at(&self, start: usize) -> bool {
        self.place_of(start).is_some()
    }

    /// Returns the note of the record that contains the address.
    pub(super) fn note_of(&self, address: usize) -> Option<Note> {
        let mut found = None;
        self.for_each(|range, note| {
            if range.contains(&address) {
                found = Some(note);
            }
        });
        found
    }

    /// Returns the place of a record that begins at `start`, if it is in one of the sets of that
    /// start.
    fn place_of(&self, start: usize) -> Option<usize> {
        let mut places = sets_of(start).into_iter().flatten();
        places.find(|&at| Word(self.places[at].word.load(Ordering::Acquire)).begins_at(start))
    }

    /// Cuts a range of whole pages out of all records, and reports each cut to `did`.
    ///
    /// A failed attempt to split a record also counts as a split; a concurrent search then makes
    /// one more pass.
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
        for _ in 0..MAX_LOOKS {
            let ended = self.splits_ended.load(Ordering::SeqCst);
            let mut own = 0;
            self.each_used(|at| own += u64::from(self.cut_one(at, range, &mut did)));
            // Fewer only in the child of a fork inside a split.
            if self.splits_begun.load(Ordering::SeqCst) <= ended + own {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Forgets changes that were under way, in the child of a fork, which does not have the threads that made them.
    /// Their unfinished records are lost.
    pub(super) fn after_fork_in_child(&self) {
        let begun = self.splits_begun.load(Ordering::Relaxed);
        let used = self
            .used
            .iter()
            .map(|word| word.load(Ordering::Relaxed).count_ones() as usize);
        if begun == self.splits_ended.load(Ordering::Relaxed)
            && used.sum::<usize>() == self.taken.load(Ordering::Relaxed)
        {
            return;
        }
        let mut taken = 0;
        for (at, place) in self.places.iter().enumerate() {
            let word = Word(place.word.load(Ordering::Relaxed));
            if word.range().is_some() {
                taken += 1;
                continue;
            }
            let bit: u64 = 1 << (at % WORD_BITS);
            let used = &self.used[at / WORD_BITS];
            used.store(used.load(Ordering::Relaxed) & !bit, Ordering::Relaxed);
            // A page that is only read is not copied.
            if word != Word::EMPTY {
                place.word.store(Word::EMPTY.0, Ordering::Relaxed);
            }
        }
        self.taken.store(taken, Ordering::Relaxed);
        self.splits_ended.store(begun, Ordering::Relaxed);
    }

    /// Cuts a range out of the record at a place. Returns whether it split the record in two.
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
            let cut = |remainder| Cut {
                range: gone.clone(),
                note,
                remainder,
            };
            // If another thread has cut off another part meanwhile, try again.
            match (left.is_empty(), right.is_empty()) {
                (true, true) => {
                    if self.replace(at, before, Word::CLAIMED) {
                        let bit: u64 = 1 << (at % WORD_BITS);
                        self.used[at / WORD_BITS].fetch_and(!bit, Ordering::Relaxed);
                        place.word.store(Word::EMPTY.0, Ordering::Release);
                        self.taken.fetch_sub(1, Ordering::Relaxed);
                        did(cut(Remainder::Empty));
                        return false;
                    }
                }
                (false, false) => {
                    self.splits_begun.fetch_add(1, Ordering::SeqCst);
                    let is_cut = self.replace(at, before, Word::from_range(&left));
                    let has_room = is_cut && self.insert_one(&right, note);
                    self.splits_ended.fetch_add(1, Ordering::SeqCst);
                    if is_cut {
                        did(if has_room {
                            cut(Remainder::TwoParts)
                        } else {
                            Cut {
                                range: gone.start..record.end,
                                ..cut(Remainder::Truncated)
                            }
                        });
                        return true;
                    }
                }
                (false, true) | (true, false) => {
                    let rest = if left.is_empty() { &right } else { &left };
                    if self.replace(at, before, Word::from_range(rest)) {
                        did(cut(Remainder::OnePart));
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

    /// Visits all records.
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

/// Returns the two sets of places for a record that begins at `start`. The first keeps records with
/// near addresses near in the table; the second spreads many small ones.
fn sets_of(start: usize) -> [Range<usize>; 2] {
    let mixed = (start as u64 / PAGE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    [start >> 20, mixed as usize].map(|set| {
        let first = set % SETS * WAYS;
        first..first + WAYS
    })
}

#[cfg(test)]
mod tests;
