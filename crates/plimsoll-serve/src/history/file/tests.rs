//! Tests of the history in the post-mortem file.

use std::time::Duration;

use plimsoll_postmortem::history::{self, History};
use plimsoll_sys::os::region::Part;

use super::*;
use crate::history::growth::State;
use crate::history::heaps::{Due, Heaps, SiteKey};
use plimsoll_core::label::Labels;

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
    let shared = Shared::new(FIRST_RING);
    let mut recorder = Recorder::new(&shared.regions).unwrap();
    recorder.add_point(0, &point(1));
    recorder.write_heaps(heaps.kept());
    assert!(!shared.read().damaged);
}

#[test]
fn a_record_of_growth_that_is_not_whole_leaves_the_one_before() {
    let shared = Shared::new(256 << 10);
    let recorder = Recorder::new(&shared.regions).unwrap();
    recorder.set_start_of_system(1000);
    assert!(shared.read().growth.is_none());
    let mut state = State::new(1 << 20, Duration::ZERO);
    // The time of a reading determines the time of the next one.
    const DISTANCE: u64 = 100_000 * SECOND;
    for number in 1..=3_u64 {
        for reading in 6 * number - 5..=6 * number {
            if let Some(verdicts) = state.read_if_due(reading * DISTANCE) {
                recorder.write_growth(&verdicts);
            }
        }
        let growth = shared.read().growth.unwrap();
        assert_eq!(growth.readings, 6 * number);
        assert_eq!(growth.time_ns, 1000 + 6 * number * DISTANCE);
        assert_eq!(growth.readings_needed, crate::history::READINGS_NEEDED);
    }
    assert!(!shared.read().damaged);
    let words = Words::from_region(&shared.regions[0], FIRST_RING).unwrap();
    let newest = GROWTH / 8 + growth::COPY_BYTES / 8;
    words.set(newest + growth::READINGS, 1000);
    assert_eq!(shared.read().growth.unwrap().readings, 12);
    words.set(GROWTH / 8 + growth::SITES, u64::MAX);
    assert!(shared.read().growth.is_none());
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
        // SAFETY: the child exists until it is waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // Until it has ended, it writes.
        plimsoll_testkit::child::wait(child);
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
