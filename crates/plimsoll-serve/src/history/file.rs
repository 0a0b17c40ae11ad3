//! Writes the history to the post-mortem file, in the layout of
//! [`plimsoll_postmortem::layout::history`].
//!
//! Only the maintenance thread writes, once per reading. It holds the lock of the history, which a
//! fork takes as well, so no child begins in the middle of a write. Each page gets its disk space
//! before it is written: see [`Region`]. Without space, the file keeps its earlier readings.
//!
//! The process may be killed at any instruction. Readers are protected by the checks of slots and by
//! the word that selects a half of the heap readings, so a write needs no other order.

use plimsoll_postmortem::layout::history::{
    FIRST_RING, GROWTH, HEAD_BYTES, MAX_RINGS, MAX_SERIES, SLOT_HEAD_WORDS, check, growth, head,
    heap, slot_words,
};
use plimsoll_sys::os::region::{Region, page_size};
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::growth::Verdicts;
use super::heaps::{Heap, Site};
use super::rings::{Point, RINGS};
use super::series::SERIES;

/// The words of a slot.
const SLOT_WORDS: usize = slot_words(SERIES.len());

/// The bytes that the slots of full rings take.
const ALL_SLOTS_BYTES: usize = {
    let [(_, seconds), (_, tens), (_, minutes)] = RINGS;
    (seconds + tens + minutes) * 8 * SLOT_WORDS
};

const _: () = assert!(RINGS.len() <= MAX_RINGS && SERIES.len() <= MAX_SERIES);

/// Divides the bytes of the part among the head with the rings, and two halves of heap readings.
pub(super) fn divide(length: usize) -> [usize; 3] {
    let page = page_size();
    let slots = (length.saturating_sub(FIRST_RING) / 2).min(ALL_SLOTS_BYTES);
    let first = (FIRST_RING + slots).next_multiple_of(page).min(length);
    let half = (length - first) / 2 / page * page;
    [first, half, half]
}

/// The words at the beginning of a region, all of them with disk space.
struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// Returns the first bytes of a region. Returns `None` if there is no disk space for them.
    fn from_region(region: &'a Region, bytes: usize) -> Option<Self> {
        region.commit(bytes).then(|| {
            // SAFETY: `commit` made these bytes accessible for good, and the base of a region is the
            // beginning of a page.
            Self(unsafe {
                std::slice::from_raw_parts(region.base() as *const AtomicU64, bytes / 8)
            })
        })
    }

    fn set(&self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Relaxed);
    }

    fn get(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
}

/// The place of a ring in the file.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    /// The offset of the first slot in bytes.
    offset: usize,
    slots: usize,
    /// The number of the last reading, from 1.
    last: u64,
}

/// Removes the history from the file.
pub(super) fn clear(regions: &[Region; 3]) {
    let used = regions[0].committed();
    if used == 0 {
        return;
    }
    if let Some(words) = Words::from_region(&regions[0], used) {
        words.0[head::RINGS].store(0, Ordering::SeqCst);
        for word in words.0 {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Writes readings to the file.
pub(super) struct Recorder<'a> {
    regions: &'a [Region; 3],
    rings: [Ring; RINGS.len()],
}

impl<'a> Recorder<'a> {
    /// Begins a history in regions without one. Returns `None` if there is no disk space for its
    /// head.
    pub(super) fn new(regions: &'a [Region; 3]) -> Option<Self> {
        let words = Words::from_region(&regions[0], FIRST_RING)?;
        let names = SERIES.join("\n");
        debug_assert!(names.len() <= GROWTH - HEAD_BYTES);
        for (at, bytes) in names.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            words.set(HEAD_BYTES / 8 + at, u64::from_ne_bytes(word));
        }
        let [first, half, other] = regions.each_ref().map(Region::base);
        words.set(head::SERIES, SERIES.len() as u64);
        words.set(head::NAMES_LENGTH, names.len() as u64);
        words.set(head::HALVES, (half - first) as u64);
        words.set(head::HALVES + 1, (other - half) as u64);
        let bytes = (regions[0].length() - FIRST_RING).min(ALL_SLOTS_BYTES);
        let mut rings = [Ring::default(); RINGS.len()];
        let mut offset = FIRST_RING;
        for (number, (ring, (seconds, points))) in rings.iter_mut().zip(RINGS).enumerate() {
            let slots = points * bytes / ALL_SLOTS_BYTES;
            *ring = Ring {
                offset,
                slots,
                last: 0,
            };
            let at = head::RING + 3 * number;
            words.set(at, seconds * 1_000_000_000);
            words.set(at + 1, offset as u64);
            words.set(at + 2, slots as u64);
            offset += slots * 8 * SLOT_WORDS;
        }
        words.0[head::RINGS].store(RINGS.len() as u64, Ordering::Release);
        Some(Self { regions, rings })
    }

    fn head(&self) -> Option<Words<'a>> {
        Words::from_region(&self.regions[0], FIRST_RING)
    }

    /// Records the start of the system in nanoseconds since 1970.
    pub(super) fn set_start_of_system(&self, since_1970_ns: u64) {
        if let Some(head) = self.head() {
            head.set(head::SYSTEM_START, since_1970_ns);
        }
    }

    /// Counts a reading without space.
    fn count_lost(&self) {
        if let Some(head) = self.head() {
            head.set(head::LOST, head.get(head::LOST) + 1);
        }
    }

    /// Writes a reading to the ring of this number.
    pub(super) fn add_point(&mut self, ring: usize, point: &Point) {
        let Some(ring) = self.rings.get_mut(ring).filter(|ring| ring.slots > 0) else {
            return;
        };
        let slot = ring.last as usize % ring.slots;
        let at = ring.offset + slot * 8 * SLOT_WORDS;
        ring.last += 1;
        let number = ring.last;
        let Some(words) = Words::from_region(&self.regions[0], at + 8 * SLOT_WORDS) else {
            return self.count_lost();
        };
        let slot = Words(&words.0[at / 8..]);
        slot.set(0, number);
        slot.set(1, point.at);
        for (at, value) in point.values.iter().enumerate() {
            slot.set(SLOT_HEAD_WORDS + at, value.to_bits());
        }
        let written = (0..SLOT_WORDS - 1).map(|at| slot.get(at));
        slot.set(SLOT_WORDS - 1, check(written));
    }

    /// Writes the verdicts in place of the older of two records.
    pub(super) fn write_growth(&self, verdicts: &Verdicts<'_>) {
        let Some(head) = self.head() else { return };
        let copy = |number: u64| {
            let at = GROWTH + (number % 2) as usize * growth::COPY_BYTES;
            Words(&head.0[at / 8..][..growth::COPY_BYTES / 8])
        };
        let number = 1 + [0, 1]
            .map(|number| copy(number).get(growth::NUMBER))
            .into_iter()
            .fold(0, u64::max);
        let words = verdicts.words(number);
        let record = copy(number);
        for (at, &word) in words.iter().enumerate() {
            record.set(at, word);
        }
        record.set(words.len(), check(words.into_iter()));
    }

    /// Writes all kept readings of the heap profile, oldest first, in place of those before. Writes
    /// only the newest ones if not all of them fit.
    pub(super) fn write_heaps(&self, heaps: &[Heap]) {
        let Some(head) = self.head() else { return };
        let number = head.get(head::SELECTED) + 1;
        let half = &self.regions[1 + number as usize % 2];
        let mut used = 8;
        let mut fitting = &heaps[heaps.len()..];
        for (from, heap) in heaps.iter().enumerate().rev() {
            let with = used + bytes_of(heap);
            if with > half.length() {
                break;
            }
            (used, fitting) = (with, &heaps[from..]);
        }
        let words = (!fitting.is_empty())
            .then(|| Words::from_region(half, used))
            .flatten();
        if words.is_none() || fitting.len() < heaps.len() {
            self.count_lost();
        }
        let Some(words) = words else { return };
        words.set(0, used as u64);
        let mut next = words.0[1..].iter();
        let mut put = |value: u64| {
            if let Some(word) = next.next() {
                word.store(value, Ordering::Relaxed);
            }
        };
        for heap in fitting {
            for word in words_of(heap) {
                put(word);
            }
            for Site {
                name,
                objects,
                bytes,
                ..
            } in &heap.sites
            {
                let site: [u64; heap::SITE_WORDS] =
                    [u64::from(*name), *objects as u64, *bytes as u64];
                site.into_iter().for_each(&mut put);
            }
        }
        head.0[head::SELECTED].store(number, Ordering::Release);
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("rings", &self.rings)
            .finish_non_exhaustive()
    }
}

/// Returns the bytes that a reading takes in the file.
fn bytes_of(heap: &Heap) -> usize {
    8 * (heap::HEAD_WORDS + heap.sites.len() * heap::SITE_WORDS)
}

/// Returns the words of a reading before its sites.
fn words_of(heap: &Heap) -> [u64; heap::HEAD_WORDS] {
    let mut words = [0; heap::HEAD_WORDS];
    words[heap::NUMBER] = heap.number;
    words[heap::AT] = heap.at;
    words[heap::BYTES] = heap.bytes as u64;
    words[heap::IS_MAXIMUM] = u64::from(heap.is_maximum);
    words[heap::SITES] = heap.sites.len() as u64;
    words
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
