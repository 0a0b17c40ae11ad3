//! The profile `lifetimes`: how long freed blocks had lived. Each test runs in a separate process,
//! and every block is sampled.

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::{child, pprof};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::label;
use plimsoll::profile::{self, Format};
use pprof::Profile;

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
    let mut growing = black_box(Vec::with_capacity(112));
    growing.resize(224, 1);
    black_box(growing)
}

/// Returns the shortest lifetime, the objects and the bytes of each sample with the leaf `of`.
fn lives(of: &str) -> Vec<(i64, i64, i64)> {
    let profile = read_profile("lifetimes");
    assert_eq!(
        profile.sample_types(),
        [
            ("freed_objects", "count"),
            ("freed_space", "bytes"),
            ("temporary_objects", "count"),
            ("temporary_space", "bytes"),
        ]
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
            // One call: the optimizer unrolls a loop whose length it knows.
            for size in black_box(vec![64, 64, 40000]) {
                let block = lasting(size);
                thread::sleep(Duration::from_millis(200));
                drop(block);
            }
            let all = begun.elapsed().as_nanos() as i64;
            for _ in 0..1000 {
                drop(brief(64));
            }
            assert_eq!(lives("memory::lifetimes::kept"), []);
            let lasting = lives("memory::lifetimes::lasting");
            let sum = lasting.iter().fold((0, 0), |sum, (from, objects, bytes)| {
                assert!((SECOND / 10..all).contains(from), "{lasting:?}");
                (sum.0 + objects, sum.1 + bytes)
            });
            assert_eq!(sum, (3, 40000 + 2 * 64));
            // Blocks of all sizes of a site share a sample.
            assert!(all > SECOND || lasting.len() == 1, "{lasting:?}");
            let brief = lives("memory::lifetimes::brief");
            let sum = brief.iter().map(|(_, objects, _)| objects).sum::<i64>();
            assert_eq!(sum, 1000, "{brief:?}");
            let short = brief.iter().filter(|(from, ..)| *from < SECOND / 1000);
            assert!(
                short.map(|(_, objects, _)| objects).sum::<i64>() > 900,
                "{brief:?}"
            );
            drop(still);
            assert_eq!(lives("memory::lifetimes::kept").len(), 1);
        },
    );
}

#[test]
fn a_growing_block_has_a_lifetime_at_each_site() {
    child::run("a_growing_block_has_a_lifetime_at_each_site", ALL, || {
        let block = growing();
        let sum = |lives: Vec<(i64, i64, i64)>| {
            let lives = lives.into_iter();
            lives.fold((0, 0), |(objects, bytes), (_, more, size)| {
                (objects + more, bytes + size)
            })
        };
        assert_eq!(sum(lives("memory::lifetimes::growing")), (1, 112));
        drop(block);
        assert_eq!(sum(lives("memory::lifetimes::growing")), (2, 112 + 224));
    });
}

/// Returns the temporary objects and bytes with the leaf `of`.
fn temporary(of: &str) -> (i64, i64) {
    let profile = read_profile("lifetimes");
    let sum = |at: usize| profile.at(of).iter().map(|sample| sample.value[at]).sum();
    (sum(2), sum(3))
}

#[test]
fn a_block_freed_before_the_next_allocation_is_temporary() {
    child::run(
        "a_block_freed_before_the_next_allocation_is_temporary",
        ALL,
        || {
            for _ in 0..100 {
                drop(brief(64));
                drop(brief(40_000));
                let (first, second) = (lasting(64), lasting(80));
                drop((first, second));
                let first = kept(64);
                drop(growing());
                drop(first);
            }
            let profile = read_profile("lifetimes");
            assert_eq!(temporary("memory::lifetimes::brief"), (200, 100 * 40_064));
            // Of two, the last one is.
            assert_eq!(temporary("memory::lifetimes::lasting"), (100, 100 * 80));
            assert_eq!(temporary("memory::lifetimes::kept"), (0, 0));
            // The first block of each pair was replaced by `realloc`.
            let grown = lives("memory::lifetimes::growing");
            assert_eq!(
                grown.iter().map(|(_, objects, _)| objects).sum::<i64>(),
                200
            );
            assert_eq!(temporary("memory::lifetimes::growing"), (100, 100 * 224));
            assert!(!profile.at("memory::lifetimes::brief").is_empty());
        },
    );
}

/// A change of the rate draws the distance anew, which is no allocation.
#[test]
fn a_block_is_temporary_across_a_change_of_the_rate() {
    child::run(
        "a_block_is_temporary_across_a_change_of_the_rate",
        ALL,
        || {
            for round in 0..100 {
                let block = brief(64);
                let other = lasting(64);
                profile::set_heap_rate(if round % 2 == 0 { 1 << 20 } else { 64 });
                drop(other);
                drop(block);
                profile::set_heap_rate(1);
            }
            assert_eq!(temporary("memory::lifetimes::lasting").0, 100);
            assert_eq!(temporary("memory::lifetimes::brief").0, 0);
        },
    );
}

/// The last allocation of a thread that only frees is none of these blocks.
#[test]
fn a_block_that_another_thread_frees_is_not_temporary() {
    child::run(
        "a_block_that_another_thread_frees_is_not_temporary",
        "heap_rate=1",
        || {
            let blocks: Vec<Vec<u8>> = (0..1000).map(|_| lasting(64)).collect();
            let freeing = thread::spawn(move || drop(blocks));
            freeing.join().unwrap();
            assert_eq!(temporary("memory::lifetimes::lasting").0, 0);
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    thread::spawn(|| {
                        for _ in 0..1000 {
                            drop(brief(64));
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(temporary("memory::lifetimes::brief").0, 4000);
        },
    );
}

/// The bytes freed according to `allocs` equal those of `lifetimes`, with the same labels.
#[test]
fn all_that_was_freed_is_in_it() {
    child::run("all_that_was_freed_is_in_it", "heap_rate=512", || {
        let labelled = label::with([("tenant", "acme")]);
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
        let (allocs, lifetimes) = (read_profile("allocs"), read_profile("lifetimes"));
        for site in ["memory::lifetimes::brief", "memory::lifetimes::lasting"] {
            let value = |profile: &Profile, at: usize| -> i64 {
                profile.at(site).iter().map(|sample| sample.value[at]).sum()
            };
            let freed = [0, 1].map(|at| value(&allocs, at) - value(&allocs, at + 2));
            let ended = [0, 1].map(|at| value(&lifetimes, at));
            assert!(freed[0] > 500, "{freed:?}");
            assert_eq!(freed[1], ended[1], "{site}");
            // Each sample rounds its objects down to a whole number.
            let samples = allocs.at(site).len() + lifetimes.at(site).len();
            assert!(freed[0].abs_diff(ended[0]) <= samples as u64, "{site}");
        }
        let lasting = lifetimes.at("memory::lifetimes::lasting");
        let labelled = |sample: &&pprof::Sample| lifetimes.label(sample, "tenant") == Some("acme");
        assert!(lasting.iter().all(labelled));
    });
}

#[test]
fn the_text_has_the_lifetimes() {
    child::run("the_text_has_the_lifetimes", ALL, || {
        let begun = Instant::now();
        let block = lasting(112);
        thread::sleep(Duration::from_millis(20));
        drop(block);
        let lived = begun.elapsed();
        let mut text = Vec::new();
        let lifetimes = profile::lookup("lifetimes").unwrap();
        lifetimes.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("lifetimes profile: @ heap/1\n"), "{text}");
        // Usually the first decade; a later one on a slow machine.
        let decades = [
            (10, "10ms to 100ms"),
            (100, "100ms to 1s"),
            (1000, "1s to 10s"),
        ];
        let mut can_be = decades
            .iter()
            .filter(|(least, _)| Duration::from_millis(*least) <= lived);
        let is_there = can_be.any(|(_, decade)| {
            let line = format!("1: 112 [lived {decade}] @ 0x");
            text.lines().any(|there| there.starts_with(&line))
        });
        assert!(is_there, "{lived:?}: {text}");
        assert!(text.contains("memory::lifetimes::lasting"), "{text}");
    });
}
