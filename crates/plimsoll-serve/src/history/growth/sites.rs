//! The allocation sites whose growth is observed, and their readings.

use plimsoll_sys::hash::HashMap;

use super::levels::{JUDGED, Levels, Window};
use super::verdict::{self, Circumstances, Judgement, Slot, Verdict};
use plimsoll_core::sampler::{WEIGHT_BITS, cell};
use plimsoll_core::stack::{Kind, TABLE};

/// A site that is not observed takes the place of one with less than this share of its bytes.
const REPLACED: f64 = 0.5;

/// The sums of a site since the process began. Cells wrap, and so does their difference.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// The name of one of its buckets in the table of stacks.
    name: u32,
    /// Sampled allocations and frees.
    pub(super) mallocs: u64,
    pub(super) frees: u64,
    /// Estimated bytes.
    pub(super) malloc_bytes: u64,
    pub(super) free_bytes: u64,
    /// Estimated objects.
    malloc_weight: u64,
    free_weight: u64,
}

impl Sums {
    fn add(&mut self, name: u32, cells: &[u64]) {
        self.name = name;
        for (sum, cell) in [
            (&mut self.mallocs, cell::MALLOCS),
            (&mut self.frees, cell::FREES),
            (&mut self.malloc_bytes, cell::MALLOC_BYTES),
            (&mut self.free_bytes, cell::FREE_BYTES),
            (&mut self.malloc_weight, cell::MALLOC_WEIGHT),
            (&mut self.free_weight, cell::FREE_WEIGHT),
        ] {
            *sum = sum.wrapping_add(cells[cell]);
        }
    }

    /// Returns the bytes in use.
    fn bytes(&self) -> f64 {
        // A reading beside allocations may miss one that was freed meanwhile.
        (self.malloc_bytes.wrapping_sub(self.free_bytes) as i64).max(0) as f64
    }

    fn objects(&self) -> f64 {
        let weight = self.malloc_weight.wrapping_sub(self.free_weight) as i64;
        (weight >> WEIGHT_BITS).max(0) as f64
    }
}

/// The stack of a site, by its place in the table of stacks, which keeps it for ever.
type Key = (*const usize, usize);

#[derive(Debug)]
struct Site {
    stack: &'static [usize],
    sums: Sums,
    levels: Levels,
}

/// The observed sites.
#[derive(Debug)]
pub(super) struct Sites {
    most: usize,
    observed: HashMap<Key, Site>,
    /// Whether there ever was a site without a place.
    was_full: bool,
    readings: u64,
}

// SAFETY: the pointers of keys are only compared.
unsafe impl Send for Sites {}

/// A site with what its readings show.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) stack: &'static [usize],
    /// The name of a bucket with that stack in the table of stacks.
    pub(super) name: u32,
    pub(super) bytes: f64,
    pub(super) objects: f64,
    pub(super) judgement: Judgement,
    /// The number of readings in a slot of the judged window.
    pub(super) slot: u64,
    /// Allocated and freed objects within the window.
    pub(super) mallocs: f64,
    pub(super) frees: f64,
    /// Bytes over the time observed, each with the number of a reading.
    pub(super) course: Vec<(u64, f32)>,
}

impl Sites {
    /// Returns no sites; at most as many as fit into so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            most: bytes / (size_of::<Site>() + 2 * size_of::<Key>()),
            observed: HashMap::default(),
            was_full: false,
            readings: 0,
        }
    }

    /// Returns the number of readings.
    pub(super) fn readings(&self) -> u64 {
        self.readings
    }

    /// Reads all sites of the heap profile.
    pub(super) fn read(&mut self) {
        let mut sums: HashMap<Key, (&'static [usize], Sums)> = HashMap::default();
        TABLE.read(Kind::Heap, |record| {
            if !record.overflow {
                let key = (record.stack.as_ptr(), record.stack.len());
                let (_, sums) = sums.entry(key).or_insert((record.stack, Sums::default()));
                sums.add(record.name, &record.cells);
            }
        });
        self.add(sums);
    }

    fn add(&mut self, mut sums: HashMap<Key, (&'static [usize], Sums)>) {
        for (key, site) in &mut self.observed {
            let (_, now) = sums.remove(key).unwrap_or((site.stack, site.sums));
            let reading = Slot {
                bytes: now.bytes() as f32,
                mallocs: now.mallocs.wrapping_sub(site.sums.mallocs) as f32,
                frees: now.frees.wrapping_sub(site.sums.frees) as f32,
            };
            site.sums = now;
            site.levels.add(self.readings, reading);
        }
        // The largest ones first, for the case that not all have a place.
        let mut new: Vec<(Key, &'static [usize], Sums)> = sums
            .into_iter()
            .filter(|(_, (_, sums))| sums.bytes() > 0.0)
            .map(|(key, (stack, sums))| (key, stack, sums))
            .collect();
        new.sort_by(|one, other| other.2.bytes().total_cmp(&one.2.bytes()));
        for (key, stack, sums) in new {
            if !self.has_place_for(sums.bytes()) {
                self.was_full = true;
                break;
            }
            // A new site had nothing before. Otherwise its earlier values are unknown.
            let (before, mallocs, frees) = match self.was_full || self.readings == 0 {
                true => (sums.bytes() as f32, 0, 0),
                false => (0.0, sums.mallocs, sums.frees),
            };
            let mut levels = Levels::new(before);
            let reading = Slot {
                bytes: sums.bytes() as f32,
                mallocs: mallocs as f32,
                frees: frees as f32,
            };
            levels.add(self.readings, reading);
            self.observed.insert(
                key,
                Site {
                    stack,
                    sums,
                    levels,
                },
            );
        }
        self.readings += 1;
    }

    /// Returns whether a site with so many bytes in use may be observed. Removes a smaller one for it.
    fn has_place_for(&mut self, bytes: f64) -> bool {
        if self.observed.len() < self.most {
            return true;
        }
        self.was_full = true;
        let sites = self.observed.iter();
        let smallest = sites
            .map(|(key, site)| (*key, site.sums.bytes()))
            .min_by(|one, other| one.1.total_cmp(&other.1));
        match smallest {
            Some((key, least)) if least < REPLACED * bytes => {
                self.observed.remove(&key);
                true
            }
            _ => false,
        }
    }

    /// Judges all sites. `is_sampled` is whether some blocks are not sampled.
    pub(super) fn judge(&self, is_sampled: bool) -> Vec<Judged> {
        let tests = self.observed.len() * JUDGED;
        let sites = self.observed.values();
        sites
            .filter_map(|site| site.judge(self.readings, tests, is_sampled))
            .collect()
    }
}

impl Site {
    /// Returns the judgement of the longest window with the gravest verdict; `None` if none was
    /// observed for long enough.
    fn judge(&self, readings: u64, tests: usize, is_sampled: bool) -> Option<Judged> {
        let sums = &self.sums;
        let bytes_of_sample = sums.malloc_bytes as f64 / sums.mallocs.max(1) as f64;
        let objects_of_sample =
            (sums.malloc_weight >> WEIGHT_BITS) as f64 / sums.mallocs.max(1) as f64;
        let windows = (0..JUDGED).filter_map(|level| self.levels.window(readings, level));
        let judged = windows.map(|window| {
            let about = Circumstances {
                prior_length: window.prior_length,
                is_long: window.is_long,
                bytes_of_sample: bytes_of_sample.max(1.0),
                is_sampled,
                tests,
            };
            let judgement = verdict::judge(&window.slots, &window.prior, about);
            (window, judgement)
        });
        let rank = |(_, judgement): &(Window, Judgement)| judgement.verdict;
        // The last of equal ones, which is the longest.
        let (window, judgement) = judged.max_by_key(rank)?;
        let events = |of: fn(&Slot) -> f32| {
            let events = window.slots.iter().map(of);
            f64::from(events.sum::<f32>()) * objects_of_sample
        };
        Some(Judged {
            stack: self.stack,
            name: sums.name,
            bytes: sums.bytes(),
            objects: sums.objects(),
            judgement,
            slot: window.slot,
            mallocs: events(|slot| slot.mallocs),
            frees: events(|slot| slot.frees),
            course: self.levels.course(readings),
        })
    }
}

/// Returns the sum of the growth of all leaking sites, in bytes for each reading.
pub(super) fn leaking_bytes(sites: &[Judged]) -> f64 {
    let leaking = sites
        .iter()
        .filter(|site| site.judgement.verdict == Verdict::Leaking);
    let rates = leaking.map(|site| site.judgement.slope / site.slot as f64);
    // The sum of no numbers is -0.
    rates.sum::<f64>() + 0.0
}
