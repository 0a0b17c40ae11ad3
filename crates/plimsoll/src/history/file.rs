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
    FIRST_RING, HEAD_BYTES, MAX_RINGS, MAX_SERIES, SLOT_HEAD_WORDS, check, head, heap, slot_words,
};
use plimsoll_sys::os::region::{PAGE, Region};
use plimsoll_sys::primitives::{AtomicU64, Ordering};

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
    let slots = (length.saturating_sub(FIRST_RING) / 2).min(ALL_SLOTS_BYTES);
    let first = (FIRST_RING + slots).next_multiple_of(PAGE).min(length);
    let half = (length - first) / 2 / PAGE * PAGE;
    [first, half, half]
}

/// The words at the beginning of a region, all of them with disk space.
struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// Returns the first bytes of a region. Returns `None` if there is no disk space for them.
    fn of(region: &'a Region, bytes: usize) -> Option<Self> {
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
    if let Some(words) = Words::of(&regions[0], used) {
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
        let words = Words::of(&regions[0], FIRST_RING)?;
        let names = SERIES.join("\n");
        debug_assert!(names.len() <= FIRST_RING - HEAD_BYTES);
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
        Words::of(&self.regions[0], FIRST_RING)
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
        let Some(words) = Words::of(&self.regions[0], at + 8 * SLOT_WORDS) else {
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
            .then(|| Words::of(half, used))
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
mod tests {
    use plimsoll_postmortem::history::{self, History};
    use plimsoll_sys::os::region::Part;

    use super::*;
    use crate::history::heaps::{Due, Heaps, SiteKey};
    use crate::label::Labels;

    const SECOND: u64 = 1_000_000_000;

    /// A part of a file in memory that a child of a fork shares. It stays mapped, because regions are
    /// noted for good.
    struct Shared {
        part: Part,
        regions: [Region; 3],
    }

    impl Shared {
        fn new(length: usize) -> Self {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the kernel chooses the address of the new mapping.
            let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) };
            assert_ne!(mapped, libc::MAP_FAILED);
            let part = Part {
                base: mapped as usize,
                length,
            };
            let regions = [const { Region::new() }; 3];
            let mut base = part.base;
            for (region, length) in regions.iter().zip(divide(length)) {
                region.adopt_in_file(Part { base, length });
                base += length;
            }
            Self { part, regions }
        }

        fn bytes(&self) -> Vec<u8> {
            let Part { base, length } = self.part;
            // SAFETY: the mapping has this length, and no thread or process writes to it now.
            unsafe { std::slice::from_raw_parts(base as *const u8, length) }.to_vec()
        }

        fn read(&self) -> History {
            let names: Vec<u32> = (1..=1000).collect();
            history::read(&self.bytes(), &names)
        }
    }

    fn point(at: u64) -> Point {
        Point {
            at,
            values: std::array::from_fn(|series| (at + series as u64) as f64),
        }
    }

    /// Returns a reading each minute, with so many sites of `number` bytes each.
    fn heaps(readings: u64, sites: u32) -> Heaps {
        let mut heaps = Heaps::new(usize::MAX);
        for number in 1..=readings {
            let at = number * 60 * SECOND;
            let sites = (1..=sites).map(|name| Site {
                name,
                record: SiteKey {
                    stack: &[],
                    labels: Labels::NONE,
                    size: 0,
                    overflow: false,
                },
                objects: 1,
                bytes: number as i64,
            });
            let due = heaps.due(at, number as f64);
            assert_ne!(due, Due::default());
            heaps.add(due, at, number as f64, sites.collect());
        }
        heaps
    }

    /// Checks that each point and each heap reading is one that was written as a whole.
    fn assert_whole(history: &History) {
        assert!(!history.damaged);
        assert_eq!(history.series, SERIES);
        for step in &history.steps {
            for point in &step.points {
                for (series, value) in point.values().enumerate() {
                    assert_eq!(value, Some((point.time_ns + series as u64) as f64));
                }
            }
        }
        for heap in &history.heaps {
            assert!(
                heap.sites
                    .iter()
                    .all(|site| site.bytes as u64 == heap.number)
            );
        }
    }

    #[test]
    fn the_reader_finds_what_was_written() {
        let shared = Shared::new(1 << 20);
        assert!(shared.read().steps.is_empty(), "nothing was written");
        let mut recorder = Recorder::new(&shared.regions).unwrap();
        recorder.set_start_of_system(0);
        for second in 1..=2000 {
            recorder.add_point(0, &point(second * SECOND));
        }
        recorder.add_point(1, &point(10 * SECOND));
        let heaps = heaps(3, 20);
        recorder.write_heaps(&heaps.kept()[..2]);
        recorder.write_heaps(heaps.kept());
        let read = shared.read();
        assert_whole(&read);
        let lengths: Vec<_> = read
            .steps
            .iter()
            .map(|step| (step.interval_ns / SECOND, step.points.len()))
            .collect();
        let capacity = recorder.rings[0].slots;
        assert_eq!(lengths, [(1, capacity), (10, 1), (60, 0)]);
        let times = read.steps[0].points.iter().map(|point| point.time_ns);
        assert!(times.eq((1..=2000).map(|at| at * SECOND).skip(2000 - capacity)));
        let bytes: Vec<_> = read.heaps.iter().map(|heap| heap.bytes).collect();
        assert_eq!((bytes, read.lost), (vec![1, 2, 3], 0));
        assert_eq!(read.heaps[2].sites.len(), 20);
        clear(&shared.regions);
        assert!(shared.read().steps.is_empty());
        Recorder::new(&shared.regions).unwrap();
        let read = shared.read();
        assert!(!read.damaged && read.heaps.is_empty());
        assert!(read.steps.iter().all(|step| step.points.is_empty()));
    }

    #[test]
    fn the_default_part_has_space_for_all_heap_readings_in_memory() {
        let bytes = crate::history::DEFAULT_BYTES;
        let [first, half, other] = divide(bytes);
        assert!(first + half + other <= bytes && half == other);
        assert!(first - FIRST_RING >= ALL_SLOTS_BYTES);
        let sites = (bytes - crate::history::rings::BYTES) / size_of::<Site>();
        // Some 70 readings are kept.
        let needed = 8 * (1 + sites * heap::SITE_WORDS + 100 * heap::HEAD_WORDS);
        assert!(needed <= half, "{needed} of {half}");
    }

    #[test]
    fn the_newest_heap_readings_are_in_a_part_that_is_too_small() {
        let shared = Shared::new(64 << 10);
        let recorder = Recorder::new(&shared.regions).unwrap();
        let heaps = heaps(9, 200);
        recorder.write_heaps(heaps.kept());
        let read = shared.read();
        assert_whole(&read);
        let numbers: Vec<_> = read.heaps.iter().map(|heap| heap.number).collect();
        assert!(!numbers.is_empty() && numbers.len() < 9 && numbers.ends_with(&[9]));
        assert_eq!(read.lost, 1);
        let shared = Shared::new(PAGE);
        let mut recorder = Recorder::new(&shared.regions).unwrap();
        recorder.add_point(0, &point(1));
        recorder.write_heaps(heaps.kept());
        assert!(!shared.read().damaged);
    }

    /// The child of a fork writes in a loop until it is killed.
    #[test]
    fn a_writer_that_is_killed_leaves_whole_readings() {
        let heaps = [heaps(1, 1), heaps(5, 300), heaps(10, 40)];
        let (mut points, mut readings) = (0, 0);
        let shared = Shared::new(256 << 10);
        for round in 0..200_u64 {
            clear(&shared.regions);
            let mut recorder = Recorder::new(&shared.regions).unwrap();
            recorder.set_start_of_system(0);
            // SAFETY: the child writes to shared memory and makes system calls; it takes no lock.
            let child = unsafe { libc::fork() };
            if child == 0 {
                for time in 1.. {
                    recorder.add_point(time as usize % 3, &point(time));
                    recorder.write_heaps(heaps[time as usize % 3].kept());
                }
            }
            assert!(child > 0);
            let writes = &Words(
                // SAFETY: the mapping is longer, and lives as long as `shared`.
                unsafe { std::slice::from_raw_parts(shared.part.base as *const AtomicU64, 64) },
            );
            while writes.get(head::SELECTED) < 1 + round * 7 % 100 {
                // SAFETY: the child is one of this process, and no status is requested.
                let ended = unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) };
                assert_eq!(ended, 0);
            }
            for _ in 0..round * 7919 % 10_000 {
                std::hint::spin_loop();
            }
            // SAFETY: the child exists until the call of `waitpid`.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
            let read = shared.read();
            assert_whole(&read);
            points += read
                .steps
                .iter()
                .map(|step| step.points.len())
                .sum::<usize>();
            readings += read.heaps.len();
        }
        assert!(points > 200 && readings >= 200, "{points} {readings}");
    }
}
