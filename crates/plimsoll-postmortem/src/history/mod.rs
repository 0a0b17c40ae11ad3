//! Reads the history from its bytes. No byte is trusted: the reader omits invalid parts and sets
//! [`History::damaged`].

mod growth;

use crate::bytes::word;
use crate::layout::history::{
    GROWTH, HEAD_BYTES, MAX_RINGS, MAX_SERIES, SLOT_HEAD_WORDS, check, head, heap, slot_words,
};

pub use growth::{Growth, SiteGrowth, Verdict};

/// The statistics of the process at growing intervals, and kept readings of its heap profile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct History {
    /// The names of the series, in the order of the values of each [`Point`].
    pub series: Vec<String>,
    /// The readings by interval, the shortest first. Empty if the process had no history.
    pub steps: Vec<Step>,
    /// The kept readings of the heap profile, oldest first.
    pub heaps: Vec<HeapReading>,
    /// The growth of allocation sites at the last judgement; `None` if there was none.
    pub growth: Option<Growth>,
    /// The number of times that a reading was not stored, for want of space in the file or on the disk.
    pub lost: u64,
    /// Whether a part is missing, because bytes are invalid or absent.
    pub damaged: bool,
}

/// The readings of one interval.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The time between two readings, in nanoseconds.
    pub interval_ns: u64,
    /// The readings, oldest first.
    pub points: Vec<Point>,
}

/// A reading of all series.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Point {
    /// The time of the reading in nanoseconds since 1970.
    pub time_ns: u64,
    /// NaN for values that did not exist.
    values: Box<[f64]>,
}

impl Point {
    /// Returns the values in the order of [`History::series`]; `None` for values that did not exist.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<f64>> + '_ {
        let values = self.values.iter();
        values.map(|value| value.is_finite().then_some(*value))
    }
}

/// A kept reading of the heap profile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapReading {
    /// The number of the reading, from 1.
    pub number: u64,
    /// The time of the reading in nanoseconds since 1970.
    pub time_ns: u64,
    /// The bytes in use, exactly.
    pub bytes: u64,
    /// Whether the heap was larger than at all earlier ones by a tenth.
    pub is_maximum: bool,
    /// The sampled memory in use.
    pub sites: Vec<HeapSite>,
}

/// The sampled memory in use of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapSite {
    /// The index of the site in [`PostMortem::sites`](crate::PostMortem::sites). A reading has each
    /// site at most once.
    pub site: usize,
    /// Estimated objects.
    pub objects: i64,
    /// Estimated bytes.
    pub bytes: i64,
}

impl History {
    /// Returns the value of a series at a reading; `None` if the history lacks the series or the value
    /// did not exist.
    pub fn value(&self, point: &Point, series: &str) -> Option<f64> {
        let at = self.series.iter().position(|name| name == series)?;
        point.values().nth(at)?
    }
}

/// Reads a history from the bytes of its part of the file. `names` has the names of the buckets of
/// all sites of the table of stacks, in the order of these sites.
pub fn read(bytes: &[u8], names: &[u32]) -> History {
    let head: Vec<u64> = (0..HEAD_BYTES / 8)
        .map(|at| word(bytes, 8 * at).unwrap_or(0))
        .collect();
    if head[head::RINGS] == 0 {
        return History::default();
    }
    let mut reader = Reader {
        bytes,
        start: head[head::SYSTEM_START],
        history: History {
            lost: head[head::LOST],
            ..History::default()
        },
    };
    if reader.read_series(&head).is_none() {
        reader.history.damaged = true;
        return reader.history;
    }
    reader.read_rings(&head);
    if let Some((growth, is_whole)) = growth::read(bytes, reader.start, names) {
        reader.history.growth = Some(growth);
        reader.history.damaged |= !is_whole;
    }
    if reader.read_heaps(&head, names).is_none() {
        reader.history.damaged = true;
    }
    reader.history
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// The start of the system in nanoseconds since 1970.
    start: u64,
    history: History,
}

impl<'a> Reader<'a> {
    /// Returns bytes at an offset, or `None` if some are absent.
    fn piece(&self, offset: u64, length: u64) -> Option<&'a [u8]> {
        let offset = usize::try_from(offset).ok()?;
        let length = usize::try_from(length).ok()?;
        self.bytes.get(offset..)?.get(..length)
    }

    fn read_series(&mut self, head: &[u64]) -> Option<()> {
        let length = head[head::NAMES_LENGTH].min((GROWTH - HEAD_BYTES) as u64);
        let names = String::from_utf8_lossy(self.piece(HEAD_BYTES as u64, length)?);
        let series: Vec<String> = names.split('\n').map(str::to_owned).collect();
        let is_possible = series.len() <= MAX_SERIES && series.len() as u64 == head[head::SERIES];
        is_possible.then(|| self.history.series = series)
    }

    fn read_rings(&mut self, head: &[u64]) {
        let rings = head[head::RINGS].min(MAX_RINGS as u64);
        self.history.damaged |= rings < head[head::RINGS];
        let mut left = self.bytes.len() as u64;
        for ring in head[head::RING..].chunks_exact(3).take(rings as usize) {
            let (interval_ns, offset, slots) = (ring[0], ring[1], ring[2]);
            let slot_bytes = 8 * slot_words(self.history.series.len());
            // The writer gives slots their disk space when they are used, but not their place in the
            // file: all of them are in the part.
            // Rings do not overlap. So the sum of their lengths is at most the length of the part.
            let length = slots.checked_mul(slot_bytes as u64);
            let length = length.filter(|length| *length <= left);
            left -= length.unwrap_or(0);
            let points = length
                .and_then(|length| self.piece(offset, length))
                .map(|slots| self.read_slots(slots, slot_bytes));
            self.history.damaged |= points.is_none();
            self.history.steps.push(Step {
                interval_ns,
                points: points.unwrap_or_default(),
            });
        }
    }

    fn read_slots(&mut self, slots: &[u8], slot_bytes: usize) -> Vec<Point> {
        let count = slots.len() / slot_bytes;
        let (mut points, mut invalid) = (Vec::new(), 0);
        for (index, slot) in slots.chunks_exact(slot_bytes).enumerate() {
            let words =
                |from: usize, to: usize| (from..to).map(move |at| word(slot, 8 * at).unwrap_or(0));
            let last = slot_bytes / 8 - 1;
            if words(0, last + 1).all(|word| word == 0) {
                continue;
            }
            let number = word(slot, 0).unwrap_or(0);
            let is_here = number.checked_sub(1).map(|before| before % count as u64);
            if is_here != Some(index as u64) || words(last, last + 1).ne([check(words(0, last))]) {
                invalid += 1;
                continue;
            }
            let time_ns = self.start.saturating_add(word(slot, 8).unwrap_or(0));
            let values = words(SLOT_HEAD_WORDS, last).map(f64::from_bits).collect();
            points.push((number, Point { time_ns, values }));
        }
        // The process ended while it wrote one.
        self.history.damaged |= invalid > 1;
        points.sort_by_key(|(number, _)| *number);
        points.into_iter().map(|(_, point)| point).collect()
    }

    fn read_heaps(&mut self, head: &[u64], names: &[u32]) -> Option<()> {
        let selected = head[head::SELECTED];
        if selected == 0 {
            return Some(());
        }
        let (offset, length) = (head[head::HALVES], head[head::HALVES + 1]);
        let offset = offset.checked_add((selected % 2).checked_mul(length)?)?;
        let used = word(self.piece(offset, 8)?, 0)?;
        let mut half = self.piece(offset, used.min(length))?.get(8..)?;
        self.history.damaged |= used > length || used % 8 != 0;
        let mut sites = Sites::from_names(names);
        while !half.is_empty() {
            let words: Vec<u64> = (0..heap::HEAD_WORDS)
                .map(|at| word(half, 8 * at))
                .collect::<Option<_>>()?;
            let rest = half.get(8 * heap::HEAD_WORDS..)?;
            let count = usize::try_from(words[heap::SITES]).ok()?;
            let (of_sites, rest) =
                rest.split_at_checked(count.checked_mul(8 * heap::SITE_WORDS)?)?;
            half = rest;
            let (sites, is_whole) = sites.read(of_sites);
            self.history.damaged |= !is_whole;
            self.history.heaps.push(HeapReading {
                number: words[heap::NUMBER],
                time_ns: self.start.saturating_add(words[heap::AT]),
                bytes: words[heap::BYTES],
                is_maximum: words[heap::IS_MAXIMUM] != 0,
                sites,
            });
        }
        Some(())
    }
}

/// The sites of the table of stacks by the names of their buckets.
struct Sites {
    /// Names, sorted, each with its site.
    by_name: Vec<(u32, usize)>,
    /// The number of the last reading that had the site, by site.
    last: Vec<u32>,
    /// The number of readings so far.
    readings: u32,
}

impl Sites {
    fn from_names(names: &[u32]) -> Self {
        let sites = names.iter().enumerate();
        let mut by_name: Vec<_> = sites.map(|(site, &name)| (name, site)).collect();
        by_name.sort_unstable();
        Self {
            by_name,
            last: vec![0; names.len()],
            readings: 0,
        }
    }

    /// Reads the sites of one reading. Returns whether all of them are valid.
    fn read(&mut self, bytes: &[u8]) -> (Vec<HeapSite>, bool) {
        self.readings += 1;
        let mut sites = Vec::new();
        let mut is_whole = true;
        for site in bytes.chunks_exact(8 * heap::SITE_WORDS) {
            let part = |at: usize| word(site, 8 * at).unwrap_or(0);
            // A site that repeats could make the profile of a reading larger than the file.
            match self.site(part(0)) {
                Some(site) if self.is_new(site) => sites.push(HeapSite {
                    site,
                    objects: part(1) as i64,
                    bytes: part(2) as i64,
                }),
                _ => is_whole = false,
            }
        }
        (sites, is_whole)
    }

    fn site(&self, name: u64) -> Option<usize> {
        let name = u32::try_from(name).ok()?;
        let at = self.by_name.binary_search_by_key(&name, |(name, _)| *name);
        Some(self.by_name[at.ok()?].1)
    }

    /// Returns whether the current reading did not have the site yet.
    fn is_new(&mut self, site: usize) -> bool {
        std::mem::replace(&mut self.last[site], self.readings) != self.readings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::history::FIRST_RING;

    /// The offsets of the slots and of the first half in the bytes of [`part`].
    const SLOTS: usize = FIRST_RING;
    const HALVES: usize = FIRST_RING + 4096;
    const HALF: usize = 512;

    pub(super) fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..][..8].copy_from_slice(&value.to_ne_bytes());
    }

    fn put_slot(bytes: &mut [u8], slot: usize, number: u64) {
        let mut words = vec![number, 10 * number, 1.5_f64.to_bits(), f64::NAN.to_bits()];
        words.push(check(words.iter().copied()));
        for (at, word) in words.into_iter().enumerate() {
            put(bytes, SLOTS + 8 * (slot * slot_words(2) + at), word);
        }
    }

    /// Returns a history of two series, with one ring of four slots that has the readings 3 to 6, and
    /// two heap readings of two sites in the second half.
    pub(super) fn part() -> Vec<u8> {
        let mut bytes = vec![0; HALVES + 2 * HALF];
        let names = b"heap_bytes\nother";
        bytes[HEAD_BYTES..][..names.len()].copy_from_slice(names);
        let ring = [1_000_000_000, SLOTS as u64, 4];
        for (at, word) in [
            (head::RINGS, 1),
            (head::SYSTEM_START, 1000),
            (head::SERIES, 2),
            (head::NAMES_LENGTH, names.len() as u64),
            (head::HALVES, HALVES as u64),
            (head::HALVES + 1, HALF as u64),
            (head::SELECTED, 7),
            (head::RING, ring[0]),
            (head::RING + 1, ring[1]),
            (head::RING + 2, ring[2]),
        ] {
            put(&mut bytes, 8 * at, word);
        }
        for number in 3..=6 {
            put_slot(&mut bytes, (number as usize - 1) % 4, number);
        }
        let reading = |number, is_maximum, bytes: u64| {
            let sites = [[20, 1, bytes], [10, 2, bytes / 2]];
            let head = [number, 60 * number, bytes, is_maximum, 2];
            head.into_iter().chain(sites.into_iter().flatten())
        };
        let readings: Vec<u64> = reading(1, 1, 500).chain(reading(2, 0, 300)).collect();
        let half = HALVES + HALF;
        put(&mut bytes, half, 8 + 8 * readings.len() as u64);
        for (at, word) in readings.into_iter().enumerate() {
            put(&mut bytes, half + 8 + 8 * at, word);
        }
        bytes
    }

    pub(super) fn read_part(bytes: &[u8]) -> History {
        read(bytes, &[10, 20, 30])
    }

    /// Returns the times of the points, and the numbers of the heap readings.
    fn contents(history: &History) -> (Vec<u64>, Vec<u64>) {
        let points = history.steps.iter().flat_map(|step| &step.points);
        let heaps = history.heaps.iter();
        (
            points.map(|point| point.time_ns).collect(),
            heaps.map(|heap| heap.number).collect(),
        )
    }

    #[test]
    fn a_whole_part_is_read_as_it_was_written() {
        let history = read_part(&part());
        assert!(!history.damaged);
        assert_eq!(history.series, ["heap_bytes", "other"]);
        let expected = (vec![1030, 1040, 1050, 1060], vec![1, 2]);
        assert_eq!(contents(&history), expected);
        let step = &history.steps[0];
        assert_eq!(step.interval_ns, 1_000_000_000);
        assert_eq!(history.value(&step.points[0], "heap_bytes"), Some(1.5));
        assert_eq!(history.value(&step.points[0], "other"), None);
        assert_eq!(history.value(&step.points[0], "unknown"), None);
        let [first, second] = &history.heaps[..] else {
            panic!("two readings")
        };
        assert_eq!((first.time_ns, first.bytes), (1060, 500));
        assert!(first.is_maximum && !second.is_maximum);
        let sites: Vec<_> = second
            .sites
            .iter()
            .map(|site| (site.site, site.objects, site.bytes))
            .collect();
        assert_eq!(sites, [(1, 1, 300), (0, 2, 150)]);
    }

    #[test]
    fn a_part_without_a_history_is_empty_and_whole() {
        for bytes in [&[][..], &[0; 7], &[0; 8192]] {
            let history = read_part(bytes);
            assert!(!history.damaged && history.steps.is_empty() && history.heaps.is_empty());
        }
    }

    #[test]
    fn one_unfinished_slot_is_skipped_and_two_are_damage() {
        let mut bytes = part();
        put(&mut bytes, SLOTS + 8 * 2, 9);
        let history = read_part(&bytes);
        assert!(!history.damaged);
        assert_eq!(contents(&history).0, [1030, 1040, 1060]);
        put(&mut bytes, SLOTS + 8 * (slot_words(2) + 2), 9);
        let history = read_part(&bytes);
        assert!(history.damaged);
        assert_eq!(contents(&history).0, [1030, 1040]);
    }

    #[test]
    fn a_slot_in_the_place_of_another_is_not_shown() {
        let mut bytes = part();
        put_slot(&mut bytes, 0, 4);
        assert_eq!(contents(&read_part(&bytes)).0, [1030, 1040, 1060]);
    }

    /// Eight rings at one place would take eight times the memory of the part.
    #[test]
    fn rings_that_overlap_are_read_as_far_as_the_part_can_hold_them() {
        let slots = (HALVES - SLOTS) / (8 * slot_words(2));
        let mut bytes = part();
        put(&mut bytes, 8 * head::RINGS, MAX_RINGS as u64);
        for ring in 0..MAX_RINGS {
            let at = 8 * (head::RING + 3 * ring);
            put(&mut bytes, at + 8, SLOTS as u64);
            put(&mut bytes, at + 16, slots as u64);
        }
        let history = read_part(&bytes);
        let read = history.steps.iter().filter(|step| !step.points.is_empty());
        assert_eq!(read.count(), bytes.len() / (8 * slot_words(2) * slots));
        assert_eq!(history.steps.len(), MAX_RINGS);
        assert!(history.damaged);
    }

    #[test]
    fn unknown_and_repeated_sites_are_omitted() {
        let first_site = HALVES + HALF + 8 + 8 * heap::HEAD_WORDS;
        for name in [0, 10, 40, u64::MAX] {
            let mut bytes = part();
            put(&mut bytes, first_site, name);
            let history = read_part(&bytes);
            assert!(history.damaged, "{name}");
            assert_eq!(history.heaps[0].sites.len(), 1);
            assert_eq!(history.heaps[1].sites.len(), 2);
        }
    }

    #[test]
    fn a_part_that_is_cut_off_is_read_as_far_as_it_goes() {
        let bytes = part();
        for length in 1..bytes.len() {
            let history = read_part(&bytes[..length]);
            // Fewer bytes have no number of rings. The last half has unused bytes at its end.
            let is_noticed = (8..=HALVES + HALF + 8).contains(&length);
            assert!(history.damaged || !is_noticed, "{length}");
            let (points, heaps) = contents(&history);
            assert!(points.len() == 4 || length < HALVES);
            assert!(heaps.is_empty() || length > HALVES + HALF);
        }
    }

    /// Sets each word of the head and of the heap readings to values that lead out of the part.
    #[test]
    fn words_that_lead_astray_are_not_followed() {
        let whole = part();
        let head = (0..head::RING + 3).map(|at| 8 * at);
        let half = (0..24).map(|at| HALVES + HALF + 8 * at);
        for at in head.chain(half) {
            for value in [
                0,
                1,
                7,
                1 << 20,
                1 << 40,
                u64::MAX / 24,
                u64::MAX - 7,
                u64::MAX,
            ] {
                let mut bytes = whole.clone();
                put(&mut bytes, at, value);
                let history = read_part(&bytes);
                let sites = history.heaps.iter().map(|heap| heap.sites.len());
                assert!(sites.sum::<usize>() <= 2 * 3, "{at}: {value}");
                let points = history.steps.iter().map(|step| step.points.len());
                assert!(points.sum::<usize>() <= 8 * 4, "{at}: {value}");
            }
        }
    }
}
