//! The profile `peak`: memory in use by site at the peak.

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::{child, pprof};
use std::hint::black_box;
use std::thread;

use pprof::Profile;

#[inline(never)]
fn early(count: usize) -> Vec<Vec<u8>> {
    let blocks = (0..count)
        .map(|_| black_box(Vec::with_capacity(1000)))
        .collect();
    // Prevents a tail call, which would leave no frame.
    black_box(blocks)
}

#[inline(never)]
fn late(count: usize) -> Vec<Vec<u8>> {
    let blocks = (0..count)
        .map(|_| black_box(Vec::with_capacity(50_000)))
        .collect();
    black_box(blocks)
}

#[inline(never)]
fn stays() -> Vec<u8> {
    black_box(Vec::with_capacity(3_000_000))
}

/// Returns the objects and bytes of a site.
fn at(profile: &Profile, site: &str) -> (i64, i64) {
    let samples = profile.sample.iter();
    let here =
        samples.filter(|sample| profile.names(sample).iter().any(|name| name.contains(site)));
    here.fold((0, 0), |(objects, bytes), sample| {
        (objects + sample.value[0], bytes + sample.value[1])
    })
}

fn peak() -> Profile {
    let profile = read_profile("peak");
    assert_eq!(
        profile.sample_types(),
        [("peak_objects", "count"), ("peak_space", "bytes")]
    );
    profile
}

#[test]
fn the_peak_profile_is_of_the_moment_of_the_highest_use() {
    child::run(
        "the_peak_profile_is_of_the_moment_of_the_highest_use",
        "heap_rate=1",
        || {
            let stays = stays();
            // Much more than reading a profile takes.
            drop(early(20_000));
            let less = late(10);
            let (early_peak, late_peak) = (
                at(&peak(), "memory::peak::early"),
                at(&peak(), "memory::peak::late"),
            );
            assert_eq!(early_peak.0, 20_001, "the blocks, and the list of blocks");
            assert_eq!(late_peak, (0, 0));
            assert_eq!(at(&peak(), "memory::peak::stays"), (1, 3_000_000));
            drop(less);
            // A new peak: blocks that were freed before it are not part of it.
            let more = late(1000);
            assert_eq!(at(&peak(), "memory::peak::early"), (0, 0));
            let of_peak = at(&peak(), "memory::peak::late");
            assert_eq!(of_peak.0, 1001);
            drop((more, stays));
            assert_eq!(at(&peak(), "memory::peak::late"), of_peak);
            assert_eq!(at(&peak(), "memory::peak::stays"), (1, 3_000_000));
        },
    );
}

/// With several threads, the values add up to the largest total in use, except for events in
/// progress at the peak.
#[test]
fn the_peak_adds_up_with_many_threads() {
    child::run("the_peak_adds_up_with_many_threads", "heap_rate=1", || {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(|| {
                    for _ in 0..50 {
                        drop(early(100));
                    }
                    late(20)
                })
            })
            .collect();
        let kept: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        let profile = peak();
        let all: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
        let live = plimsoll::heap_stats().live_bytes() as i64;
        assert!(all >= 4 * 20 * 50_000, "{all}");
        // The peak is the current state: every earlier total was smaller, and these blocks are
        // still live.
        let late = at(&profile, "memory::peak::late").1;
        assert!((4 * 20 * 50_000..=all).contains(&late), "{late} of {all}");
        assert!(all <= live + 4 * 200_000, "{all}, {live}");
        drop(kept);
    });
}
