//! The history in post-mortem files: statistics and kept heap profiles of the time before the end.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_command::profile::{Frames, Limits, Profile, Stack, parse};
use plimsoll_postmortem::layout::word;
use plimsoll_postmortem::{HeapReading, PostMortem};
use plimsoll_symbolize::Detail;

use crate::command::{Directory, failure_of, stdout_of};
use crate::forks::{fork, raw_clone};
use crate::hostile::{is_shown, part};
use crate::workloads::{leak, ready, wait};
use crate::{Process, read, totals_add_up};

const MIB: u64 = 1 << 20;

/// Waits until the history of this process fulfils a condition.
fn wait_until(mut holds: impl FnMut(&plimsoll::history::History) -> bool) {
    while !holds(&plimsoll::history::read()) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a number of further readings.
fn wait_for_readings(count: usize) {
    let points = |history: &plimsoll::history::History| history.steps[0].points.len();
    let until = points(&plimsoll::history::read()) + count;
    wait_until(|history| points(history) >= until);
}

#[inline(never)]
fn fills_a_cache() -> Vec<Vec<u8>> {
    let cache = (0..300).map(|_| black_box(vec![1; 100_000])).collect();
    // Not a call at the end, which has no frame of its caller.
    black_box(cache)
}

/// The heap rises by 30 MB, falls, and rises by 3 MB. There are readings before, between and after.
pub fn rise_and_fall() {
    let _plimsoll = plimsoll::start();
    wait_until(|history| !history.heaps.is_empty());
    let pool = plimsoll::stats::Declared::new("pool");
    pool.grow(30_000_000);
    let cache = fills_a_cache();
    wait_until(|history| history.heaps.iter().any(|heap| heap.bytes > 30_000_000));
    drop(cache);
    leak(300);
    wait_for_readings(2);
    ready();
    wait();
}

/// Starts the history while the test may kill the process.
pub fn start_and_grow() {
    ready();
    let _plimsoll = plimsoll::start();
    loop {
        leak(1);
    }
}

#[inline(never)]
fn remembers_for_ever() {
    std::mem::forget(black_box(vec![1_u8; 1000]));
}

/// Leaks 20 blocks for each reading of the growth, until there is a verdict and a record of it.
pub fn leak_slowly() {
    let _plimsoll = plimsoll::start();
    let mut readings = 0;
    let mut until = u64::MAX;
    while readings < until {
        let growth = plimsoll::history::growth();
        for _ in 0..20 * (growth.readings - readings) {
            remembers_for_ever();
        }
        readings = growth.readings;
        if until == u64::MAX && growth.leaks().next().is_some() {
            // The record is of each sixth reading.
            until = readings + 7;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ready();
    wait();
}

/// Has no history, since the setting is off.
pub fn without() {
    let _plimsoll = plimsoll::start();
    leak(100);
    ready();
    wait();
}

/// Children of both kinds have 30 MB more than the parent. That of a fork has its own history.
pub fn fork_with_readings() {
    let _plimsoll = plimsoll::start();
    wait_for_readings(1);
    let status = fork(|| {
        let cache = fills_a_cache();
        let _plimsoll = plimsoll::start();
        wait_until(|history| history.heaps.iter().any(|heap| heap.bytes > 30_000_000));
        drop(cache);
    });
    assert_eq!(status, 0);
    let status = raw_clone(|| {
        let cache = fills_a_cache();
        leak(10);
        drop(cache);
    });
    assert_eq!(status, 0);
    wait_for_readings(2);
    ready();
    wait();
}

/// Fills the disk while the history is written.
pub fn spread_with_readings() {
    let _plimsoll = plimsoll::start();
    wait_for_readings(1);
    crate::workloads::spread();
    wait_for_readings(2);
    ready();
    wait();
}

fn left_by(work: &str, directory: &Directory, settings: &str) -> (PostMortem, String) {
    let file = directory.path("file");
    let mut process = Process::start(work, &file, settings);
    process.is_ready();
    process.kill();
    let left = read(&file);
    totals_add_up(&left);
    (left, file)
}

/// Returns the memory in use of the stacks that contain a function.
fn bytes_of(profile: &Profile, function: &str) -> i64 {
    let kind = profile.sample_type("inuse_space").expect("the type exists");
    let frames = Frames::new(profile).expect("the profile has no expression for frames");
    let mut stack = Stack::default();
    let mut sum = 0;
    for sample in profile.samples() {
        frames.read(&sample, &mut stack);
        let mut names = stack.frames().iter().map(|&frame| frames.name(frame));
        if names.any(|name| name.ends_with(function)) {
            sum += sample.value(kind);
        }
    }
    sum
}

fn profile(bytes: &[u8]) -> Profile {
    parse(bytes, Limits::default()).expect("a profile")
}

fn highest(left: &PostMortem) -> &HeapReading {
    let heaps = left.history.heaps.iter();
    heaps.max_by_key(|heap| heap.bytes).expect("some are kept")
}

/// All blocks are sampled, so the estimates are exact.
#[test]
fn a_killed_process_leaves_its_readings_and_maxima() {
    let directory = Directory::new("postmortem-history");
    let (left, file) = left_by("rise and fall with a history", &directory, "heap_rate=1");
    let history = &left.history;
    assert_eq!(history.series, plimsoll::history::SERIES);
    let intervals = history
        .steps
        .iter()
        .map(|step| step.interval_ns / 1_000_000_000);
    assert!(intervals.eq([1, 10, 60]));
    let points = &history.steps[0].points;
    assert!(points.len() >= 4, "{points:?}");
    assert!(points.is_sorted_by_key(|point| point.time_ns));
    let began = points[0].time_ns.abs_diff(left.began_ns);
    assert!(began < 3_600_000_000_000, "{began} ns after the start");
    let heap = |at: usize| history.value(&points[at], "heap_bytes").unwrap() as u64;
    assert!(heap(0) < 20 * MIB);
    assert!((0..points.len()).any(|at| heap(at) > 28 * MIB));
    let last = heap(points.len() - 1);
    assert!((2 * MIB..20 * MIB).contains(&last), "{last}");
    let maximum = highest(&left);
    assert!(
        maximum.is_maximum && maximum.bytes > 28 * MIB,
        "{maximum:?}"
    );
    assert!(maximum.sites.len() > 1);

    let at_maximum = profile(&left.reading_to_pprof(maximum, Detail::Full));
    let of_cache = bytes_of(&at_maximum, "::fills_a_cache");
    assert!(
        (30_000_000..=maximum.bytes as i64).contains(&of_cache),
        "{of_cache}"
    );
    let first = &history.heaps[0];
    let growth = profile(&left.growth_to_pprof(first, maximum, Detail::Full));
    assert_eq!(bytes_of(&growth, "::fills_a_cache"), of_cache);
    let back = profile(&left.growth_to_pprof(maximum, first, Detail::Full));
    assert_eq!(bytes_of(&back, "::fills_a_cache"), -of_cache);
    assert!(growth.duration_ns() > 0 && growth.time_ns() as u64 == maximum.time_ns);
    assert_eq!(growth.comments().count(), 2);
    the_report_shows_them(&file, &left);
}

fn the_report_shows_them(file: &str, left: &PostMortem) {
    let text = stdout_of(&["report", file]);
    for expected in [
        "\nHistory of the ",
        "  before    declared        heap    resident       limit\n",
        " 28.61MB ",
        "\nheap up to ",
        "\nKept maxima",
        "\nChange of the heap",
    ] {
        assert!(text.contains(expected), "{expected:?}: {text}");
    }
    let growth = text.split("\nChange of the heap").nth(1).unwrap();
    let names = ["fills_a_cache", "workloads::leak"];
    assert!(names.iter().any(|name| growth.contains(name)), "{growth}");
    let time = format!(
        "{}.{:09}",
        highest(left).time_ns / 1_000_000_000,
        highest(left).time_ns % 1_000_000_000
    );
    let at = stdout_of(&["report", file, "--at", &time]);
    assert!(
        at.contains("::fills_a_cache") && at.contains("bytes exactly"),
        "{at}"
    );
    assert!(!at.contains("History of the"));
    let between = stdout_of(&["report", file, "--from", "0", "--to", &time]);
    let row = between
        .lines()
        .find(|line| line.ends_with("::fills_a_cache"));
    assert!(
        row.is_some_and(|row| row.trim().starts_with('+')),
        "{between}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&stdout_of(&["report", file, "--json"])).unwrap();
    let history = &json["history"];
    assert_eq!(history["steps"][0]["seconds"], 1.0);
    let points = history["steps"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), left.history.steps[0].points.len());
    assert_eq!(
        points[0].as_array().unwrap().len(),
        1 + left.history.series.len()
    );
    assert_eq!(
        history["heaps"].as_array().unwrap().len(),
        left.history.heaps.len()
    );
    for (option, time) in [("--at", "yesterday"), ("--at", "2026-02-30 00:00:00")] {
        let (said, code) = failure_of(&["report", file, option, time]);
        assert!(code == 2 && said.contains("is not a time"), "{said}");
    }
}

#[test]
fn a_process_without_a_history_leaves_none() {
    let directory = Directory::new("postmortem-no-history");
    let (left, file) = left_by("without a history", &directory, "history=off");
    assert!(left.history.steps.is_empty() && left.history.heaps.is_empty());
    let bytes = fs::read(&file).unwrap();
    assert_eq!(part(&bytes, word::HISTORY + 1), 0, "no bytes of the file");
    let text = stdout_of(&["report", &file]);
    assert!(
        !text.contains("History") && !text.contains("maxima"),
        "{text}"
    );
    let (said, code) = failure_of(&["report", &file, "--at", "0"]);
    assert!(code == 2 && said.contains("no kept heap profile"), "{said}");
    // A program that never starts Plimsoll has none either.
    let (left, _) = left_by("leak", &directory, "");
    assert!(left.history.steps.is_empty());
}

/// All blocks are sampled.
#[test]
fn a_killed_process_leaves_the_verdicts_on_its_sites() {
    let directory = Directory::new("postmortem-growth");
    let settings = "heap_rate=1,growth=5ms";
    let (left, file) = left_by("leak slowly", &directory, settings);
    let growth = left.history.growth.as_ref().expect("a record");
    assert!(
        growth.readings >= 64 && growth.bytes_per_second > 0.0,
        "{growth:?}"
    );
    let text = stdout_of(&["report", &file, "--growth"]);
    assert!(text.contains(" sites leak: +"), "{text}");
    let row = text
        .lines()
        .find(|line| line.contains("remembers_for_ever"));
    assert!(
        row.is_some_and(|row| row.contains(" leaking ") && row.contains(" no frees ")),
        "{text}"
    );
    let text = stdout_of(&["report", &file]);
    let section = text
        .split("\nGrowth (")
        .nth(1)
        .unwrap_or_else(|| panic!("{text}"));
    assert!(section.contains("remembers_for_ever"), "{text}");
    let json = stdout_of(&["report", &file, "--growth", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["readings"], growth.readings);
    assert_eq!(json["sites"][0]["verdict"], "leaking");
}

#[test]
fn without_verdicts_the_report_of_growth_says_so() {
    let directory = Directory::new("postmortem-no-growth");
    let (left, file) = left_by("rise and fall with a history", &directory, "growth=off");
    assert!(left.history.growth.is_none());
    let (said, code) = failure_of(&["report", &file, "--growth"]);
    assert!(
        code == 1 && said.contains("the file has no growth of sites"),
        "{said}"
    );
    assert!(!stdout_of(&["report", &file]).contains("Growth ("));
    let (said, code) = failure_of(&["report", "Cargo.toml", "--growth"]);
    assert!(
        code == 2 && said.contains("nor a post-mortem file"),
        "{said}"
    );
}

#[test]
fn children_do_not_write_to_the_history_of_their_parent() {
    let directory = Directory::new("postmortem-history-fork");
    let (left, _) = left_by("fork with a history", &directory, "heap_rate=4k");
    let history = &left.history;
    let points = &history.steps[0].points;
    assert!(points.len() >= 3, "{points:?}");
    for point in points {
        let heap = history.value(point, "heap_bytes").unwrap();
        assert!(heap < 20e6, "{heap} bytes are a child's");
    }
    assert!(highest(&left).bytes < 20_000_000);
    assert_eq!(left.strays, 1);
}

/// Kills processes at random instants around the start of their history.
#[test]
fn a_process_that_is_killed_while_it_starts_its_history_leaves_a_whole_file() {
    let directory = Directory::new("postmortem-history-kill");
    let file = directory.path("file");
    let mut random = 5_u64;
    let mut with_history = 0;
    for _ in 0..40 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut process = Process::start("start and grow", &file, "heap_rate=4k");
        process.is_ready();
        let until = Instant::now() + Duration::from_micros((random >> 33) % 30_000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        process.kill();
        let left = read(&file);
        totals_add_up(&left);
        with_history += usize::from(!left.history.steps.is_empty());
    }
    println!("{with_history} of 40 files have a history");
}

#[test]
fn a_full_disk_costs_readings_and_nothing_else() {
    let directory = Directory::new("postmortem-history-full");
    let work = "spread with a history";
    let Some(mut process) = crate::files::with_disk(&directory, 1 << 20, work) else {
        return;
    };
    process.is_ready();
    let number = process.child.id();
    let left = read(&format!("/proc/{number}/root{}", directory.path("file")));
    process.kill();
    totals_add_up(&left);
    assert!(left.table_full > 1000, "{} events", left.table_full);
}

/// Damages the history at random, and reads all of its profiles.
#[test]
fn a_damaged_history_does_no_harm() {
    let directory = Directory::new("postmortem-history-damaged");
    let settings = "heap_rate=16k,table=1m,history=256k";
    let (_, file) = left_by("rise and fall with a history", &directory, settings);
    let whole = fs::read(&file).unwrap();
    let at = part(&whole, word::HISTORY);
    let word_of =
        |word: usize| u64::from_ne_bytes(whole[at + 8 * word..][..8].try_into().unwrap()) as usize;
    let half = at + word_of(4) + word_of(6) % 2 * word_of(5);
    let mut random = 3_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let regions = [
        (at, 140),
        (at + 512, 250),
        (at + 4096, 2000),
        (at + 8192, 2000),
        (half, 400),
        (half, 4000),
    ];
    for round in 0..500 {
        let mut bytes = whole.clone();
        let (from, length) = regions[round % regions.len()];
        for _ in 0..=next(10) {
            bytes[from + next(length)] = [0, 0xff, 0x80, next(256) as u8][next(4)];
        }
        assert!(is_shown(&bytes, &directory), "the header is valid");
        let left = read(&directory.path("damaged"));
        let heaps = &left.history.heaps;
        for heap in heaps {
            profile(&left.reading_to_pprof(heap, Detail::Addresses));
        }
        if let (Some(first), Some(last)) = (heaps.first(), heaps.last()) {
            profile(&left.growth_to_pprof(first, last, Detail::Addresses));
        }
        if round % 50 == 0 {
            stdout_of(&["report", &directory.path("damaged")]);
        }
    }
}
