//! The profile `lifetimes`: how long blocks had lived that were freed. Each test has a process of
//! its own, and every block is sampled.

mod child;
mod pprof;

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::label;
use plimsoll::profile::{self, Format};
use pprof::Profile;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const ALL: &str = "heap_rate=1";

const SECOND: i64 = 1_000_000_000;

#[inline(never)]
fn brief(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

#[inline(never)]
fn lasting(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

#[inline(never)]
fn kept(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

#[inline(never)]
fn growing() -> Vec<u8> {
    let mut growing = black_box(Vec::with_capacity(100));
    growing.resize(200, 1);
    black_box(growing)
}

/// The least life, the objects and the bytes of each sample whose leaf that is.
fn lives(of: &str) -> Vec<(i64, i64, i64)> {
    let profile = Profile::of("lifetimes");
    assert_eq!(
        profile.sample_types(),
        [("freed_objects", "count"), ("freed_space", "bytes")]
    );
    let sample = |sample: &&pprof::Sample| {
        let from = profile.number(sample, "lifetime").unwrap();
        (from, sample.value[0], sample.value[1])
    };
    let mut lives: Vec<_> = profile.at(of).iter().map(sample).collect();
    lives.sort_unstable();
    lives
}

#[test]
fn a_life_is_in_its_decade_and_ends_with_the_free() {
    child::run(
        "a_life_is_in_its_decade_and_ends_with_the_free",
        ALL,
        || {
            let still = kept(5000);
            let begun = Instant::now();
            for size in [64, 64, 40000] {
                let block = lasting(size);
                thread::sleep(Duration::from_millis(200));
                drop(block);
            }
            let all = begun.elapsed().as_nanos() as i64;
            for _ in 0..1000 {
                drop(brief(64));
            }
            assert_eq!(lives("lifetimes::kept"), []);
            let lasting = lives("lifetimes::lasting");
            let sum = lasting.iter().fold((0, 0), |sum, (from, objects, bytes)| {
                assert!((SECOND / 10..all).contains(from), "{lasting:?}");
                (sum.0 + objects, sum.1 + bytes)
            });
            assert_eq!(sum, (3, 40000 + 2 * 64));
            // Blocks of all sizes of a site are together.
            assert!(all > SECOND || lasting.len() == 1, "{lasting:?}");
            let brief = lives("lifetimes::brief");
            let sum = brief.iter().map(|(_, objects, _)| objects).sum::<i64>();
            assert_eq!(sum, 1000, "{brief:?}");
            let short = brief.iter().filter(|(from, ..)| *from < SECOND / 1000);
            assert!(
                short.map(|(_, objects, _)| objects).sum::<i64>() > 900,
                "{brief:?}"
            );
            drop(still);
            assert_eq!(lives("lifetimes::kept").len(), 1);
        },
    );
}

#[test]
fn what_grows_has_a_life_at_each_place() {
    child::run("what_grows_has_a_life_at_each_place", ALL, || {
        let block = growing();
        let sum = |lives: Vec<(i64, i64, i64)>| {
            let lives = lives.into_iter();
            lives.fold((0, 0), |(objects, bytes), (_, more, size)| {
                (objects + more, bytes + size)
            })
        };
        assert_eq!(sum(lives("lifetimes::growing")), (1, 104));
        drop(block);
        assert_eq!(sum(lives("lifetimes::growing")), (2, 304));
    });
}

/// What was freed by the one profile was freed by the other, with the same labels.
#[test]
fn all_that_was_freed_is_in_it() {
    child::run("all_that_was_freed_is_in_it", "heap_rate=512", || {
        let labelled = label::with([("who", "somebody")]);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(|| {
                    for round in 0..20_000 {
                        drop(brief(round % 3000));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        for round in 0..1000 {
            drop(lasting(100 * round));
        }
        drop(labelled);
        let (allocs, lifetimes) = (Profile::of("allocs"), Profile::of("lifetimes"));
        for site in ["lifetimes::brief", "lifetimes::lasting"] {
            let value = |profile: &Profile, at: usize| -> i64 {
                profile.at(site).iter().map(|sample| sample.value[at]).sum()
            };
            let freed = [0, 1].map(|at| value(&allocs, at) - value(&allocs, at + 2));
            let ended = [0, 1].map(|at| value(&lifetimes, at));
            assert!(freed[0] > 500, "{freed:?}");
            assert_eq!(freed[1], ended[1], "{site}");
            // Objects are rounded down to whole ones in each sample.
            let samples = allocs.at(site).len() + lifetimes.at(site).len();
            assert!(freed[0].abs_diff(ended[0]) <= samples as u64, "{site}");
        }
        let lasting = lifetimes.at("lifetimes::lasting");
        let who = |sample: &&pprof::Sample| lifetimes.label(sample, "who") == Some("somebody");
        assert!(lasting.iter().all(who));
    });
}

#[test]
fn the_text_says_how_long() {
    child::run("the_text_says_how_long", ALL, || {
        let begun = Instant::now();
        let block = lasting(100);
        thread::sleep(Duration::from_millis(20));
        drop(block);
        let lived = begun.elapsed();
        let mut text = Vec::new();
        let lifetimes = profile::lookup("lifetimes").unwrap();
        lifetimes.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("lifetimes profile: @ heap/1\n"), "{text}");
        // Usually the first of them.
        let decades = [
            (10, "10ms to 100ms"),
            (100, "100ms to 1s"),
            (1000, "1s to 10s"),
        ];
        let mut can_be = decades
            .iter()
            .filter(|(least, _)| Duration::from_millis(*least) <= lived);
        let is_there = can_be.any(|(_, decade)| {
            let line = format!("1: 104 [lived {decade}] @ 0x");
            text.lines().any(|there| there.starts_with(&line))
        });
        assert!(is_there, "{lived:?}: {text}");
        assert!(text.contains("lifetimes::lasting"), "{text}");
    });
}
