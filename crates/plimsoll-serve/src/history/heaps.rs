//! Kept readings of the heap profile: at each new maximum of the heap, and at growing intervals.

use super::spacing::{PERIOD, Spacing};
use plimsoll_core::label::Labels;
use plimsoll_core::sampler::{WEIGHT_BITS, cell};
use plimsoll_core::stack::{Kind, Record, TABLE};

/// The smallest heap, in bytes, of which a maximum is kept.
const MIN_MAXIMUM: f64 = (1 << 20) as f64;

/// The factor by which a maximum exceeds the last one that was kept.
const GROWTH: f64 = 1.1;

/// The number of maxima that are kept.
const MAXIMA: usize = 8;

/// The sampled memory in use of one bucket of the event table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The name of the bucket in the table.
    pub(super) name: u32,
    pub(super) record: SiteKey,
    pub(super) objects: i64,
    pub(super) bytes: i64,
}

/// The properties of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteKey {
    pub(super) stack: &'static [usize],
    pub(super) labels: Labels,
    /// The size of each object, 0 if sizes are mixed.
    pub(super) size: u64,
    pub(super) overflow: bool,
}

impl Site {
    fn from_record(record: &Record) -> Self {
        let cells = &record.cells;
        let less = |all: usize, gone: usize| cells[all].wrapping_sub(cells[gone]);
        let weight = less(cell::MALLOC_WEIGHT, cell::FREE_WEIGHT);
        Self {
            name: record.name,
            record: SiteKey {
                stack: record.stack,
                labels: record.labels,
                size: record.size,
                overflow: record.overflow,
            },
            objects: (weight >> WEIGHT_BITS) as i64,
            bytes: less(cell::MALLOC_BYTES, cell::FREE_BYTES) as i64,
        }
    }
}

/// Reads the sampled memory in use.
pub(super) fn read() -> Box<[Site]> {
    let mut sites = Vec::new();
    TABLE.read(Kind::Heap, |record| {
        let site = Site::from_record(&record);
        if (site.objects, site.bytes) != (0, 0) {
            sites.push(site);
        }
    });
    sites.into_boxed_slice()
}

/// A kept reading.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) number: u64,
    /// Nanoseconds since the system started.
    pub(super) at: u64,
    /// The exact bytes in use.
    pub(super) bytes: f64,
    pub(super) is_maximum: bool,
    is_periodic: bool,
    pub(super) sites: Box<[Site]>,
}

/// The reasons to keep a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    maximum: bool,
    periodic: bool,
}

impl Due {
    pub(super) fn is_due(self) -> bool {
        self.maximum || self.periodic
    }
}

/// The kept readings, oldest first.
#[derive(Debug)]
pub(super) struct Heaps {
    most_bytes: usize,
    kept: Vec<Heap>,
    numbers: u64,
    highest: f64,
    /// The time of the last periodic reading.
    last: Option<u64>,
}

impl Heaps {
    /// Returns no readings. They will take at most `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            most_bytes: bytes,
            kept: Vec::new(),
            numbers: 0,
            highest: 0.0,
            last: None,
        }
    }

    /// Returns whether the profile at this time, with so many bytes in use, is to be kept.
    pub(super) fn due(&self, at: u64, bytes: f64) -> Due {
        Due {
            maximum: bytes >= MIN_MAXIMUM && bytes >= self.highest * GROWTH,
            periodic: self
                .last
                .is_none_or(|last| at.saturating_sub(last) >= PERIOD),
        }
    }

    /// Keeps a reading. It is later than all others.
    pub(super) fn add(&mut self, due: Due, at: u64, bytes: f64, sites: Box<[Site]>) {
        self.numbers += 1;
        if due.maximum {
            self.highest = bytes;
        }
        if due.periodic {
            self.last = Some(at);
        }
        self.kept.push(Heap {
            number: self.numbers,
            at,
            bytes,
            is_maximum: due.maximum,
            is_periodic: due.periodic,
            sites,
        });
        self.thin_out(at);
        self.limit();
    }

    /// Forgets the oldest maxima, and periodic readings that are too close for their age.
    fn thin_out(&mut self, now: u64) {
        let mut maxima = 0;
        for heap in self.kept.iter_mut().rev() {
            maxima += usize::from(heap.is_maximum);
            heap.is_maximum &= maxima <= MAXIMA;
        }
        let mut spacing = Spacing::new(now);
        for heap in self.kept.iter_mut().filter(|heap| heap.is_periodic) {
            heap.is_periodic = spacing.stays(heap.at);
        }
        self.kept.retain(|heap| heap.is_maximum || heap.is_periodic);
    }

    /// Drops the oldest readings beyond the limit: first periodic ones. The newest stays.
    fn limit(&mut self) {
        while self.bytes() > self.most_bytes && self.kept.len() > 1 {
            let before_last = &self.kept[..self.kept.len() - 1];
            let oldest = before_last.iter().position(|heap| !heap.is_maximum);
            self.kept.remove(oldest.unwrap_or(0));
        }
        if self.bytes() > self.most_bytes {
            self.kept.clear();
        }
    }

    fn bytes(&self) -> usize {
        let kept = self.kept.iter();
        kept.map(|heap| size_of::<Heap>() + size_of_val(&*heap.sites))
            .sum()
    }

    /// Returns the readings, oldest first.
    pub(super) fn kept(&self) -> &[Heap] {
        &self.kept
    }

    /// Returns an iterator over the readings, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Heap> {
        self.kept.iter()
    }

    /// Returns the reading that is nearest to a time; `None` if none is kept.
    pub(super) fn nearest(&self, at: u64) -> Option<&Heap> {
        self.kept.iter().min_by_key(|heap| heap.at.abs_diff(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;
    const SECOND: u64 = 1_000_000_000;

    fn sites(count: usize) -> Box<[Site]> {
        let site = Site {
            name: 0,
            record: SiteKey {
                stack: &[],
                labels: Labels::NONE,
                size: 0,
                overflow: false,
            },
            objects: 1,
            bytes: 1,
        };
        vec![site; count].into_boxed_slice()
    }

    /// Offers a reading each second, and returns the times of the kept ones.
    fn kept(
        heaps: &mut Heaps,
        seconds: std::ops::Range<u64>,
        heap: impl Fn(u64) -> f64,
    ) -> Vec<u64> {
        for second in seconds {
            let at = second * SECOND;
            let due = heaps.due(at, heap(second));
            if due.is_due() {
                heaps.add(due, at, heap(second), sites(1));
            }
        }
        heaps.iter().map(|heap| heap.at / SECOND).collect()
    }

    #[test]
    fn maxima_are_kept_at_each_tenth_and_the_last_eight_of_them() {
        let mut heaps = Heaps::new(1 << 20);
        // Rises to 100 MiB in 100 s, falls, and rises again less.
        let heap = |second: u64| match second {
            0..=100 => second as f64 * MIB,
            101..=200 => (200 - second) as f64 * MIB,
            _ => (second - 200) as f64 * MIB / 2.0,
        };
        kept(&mut heaps, 0..300, heap);
        let maxima = heaps.iter().filter(|heap| heap.is_maximum);
        let maxima: Vec<u64> = maxima.map(|heap| heap.at / SECOND).collect();
        assert_eq!(maxima, [46, 51, 57, 63, 70, 77, 85, 94]);
    }

    #[test]
    fn a_small_heap_has_no_maxima() {
        let mut heaps = Heaps::new(1 << 20);
        kept(&mut heaps, 0..50, |second| second as f64 * 1000.0);
        assert!(heaps.iter().all(|heap| !heap.is_maximum));
    }

    #[test]
    fn periodic_readings_are_sparser_with_age() {
        let mut heaps = Heaps::new(1 << 20);
        let times = kept(&mut heaps, 0..3 * 86_400, |_| 1000.0);
        let now = 3 * 86_400 - 1;
        let within = |from: u64, to: u64| {
            let ages = times.iter().map(|at| now - at);
            ages.filter(|age| (from..to).contains(age)).count()
        };
        assert_eq!(within(0, 600), 10);
        assert!((16..=18).contains(&within(600, 10_800)), "{times:?}");
        assert!((44..=46).contains(&within(10_800, 2 * 86_400)), "{times:?}");
        assert_eq!(within(2 * 86_400 + 60, u64::MAX), 0);
    }

    #[test]
    fn the_limit_drops_the_oldest_and_keeps_maxima_longer() {
        let one = size_of::<Heap>() + size_of::<Site>() * 100;
        let mut heaps = Heaps::new(5 * one);
        for (minute, heap) in [10.0, 20.0, 5.0, 5.0, 5.0, 5.0, 5.0]
            .into_iter()
            .enumerate()
        {
            let at = minute as u64 * PERIOD;
            let due = heaps.due(at, heap * MIB);
            heaps.add(due, at, heap * MIB, sites(100));
        }
        let times: Vec<u64> = heaps.iter().map(|heap| heap.at / PERIOD).collect();
        assert_eq!(times, [0, 1, 4, 5, 6]);
        let due = heaps.due(7 * PERIOD, 1.0);
        heaps.add(due, 7 * PERIOD, 1.0, sites(10_000));
        assert_eq!(heaps.iter().count(), 0, "one reading is above the limit");
    }

    #[test]
    fn the_nearest_reading_is_found() {
        let mut heaps = Heaps::new(1 << 20);
        assert!(heaps.nearest(5).is_none());
        kept(&mut heaps, 0..200, |_| 0.0);
        let nearest = |second: u64| heaps.nearest(second * SECOND).map(|heap| heap.at / SECOND);
        assert_eq!(nearest(0), Some(0));
        assert_eq!(nearest(70), Some(60));
        assert_eq!(nearest(95), Some(120));
        assert_eq!(nearest(10_000), Some(180));
    }
}
