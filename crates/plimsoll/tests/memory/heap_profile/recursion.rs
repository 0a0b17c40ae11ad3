//! A recursion with an inlined function in each turn.

use std::hint::black_box;

use plimsoll::size_class;
use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::{Profile, Sample};

/// The number of recursive calls.
const TURNS: usize = 20;

/// A size that nothing else in the process allocates from these functions.
const SIZE: usize = 23_500;

#[inline(always)]
fn turns(levels: usize) -> Vec<u8> {
    let mut block = recurses(levels - 1);
    block.truncate(levels);
    black_box(block)
}

#[inline(never)]
fn recurses(levels: usize) -> Vec<u8> {
    if levels == 0 {
        black_box(Vec::with_capacity(SIZE))
    } else {
        black_box(turns(levels))
    }
}

/// Returns the names of a location's functions, innermost first.
fn functions(profile: &Profile, location: u64) -> Vec<&str> {
    let lines = profile.location[location as usize - 1].line.iter();
    let names = lines.map(|line| {
        let function = &profile.function[line.function_id as usize - 1];
        profile.text(function.name)
    });
    names.collect()
}

fn each_turn_is_one_location() {
    let kept = recurses(TURNS);
    let profile = read_profile("heap");
    for location in &profile.location {
        let names = functions(&profile, location.id);
        let calls = names.iter().filter(|name| name.ends_with("::recurses"));
        assert!(calls.count() <= 1, "{names:?}");
    }
    let bytes = size_class::counted_size(SIZE) as i64;
    let is_of_recursion = |sample: &&Sample| {
        profile.number(sample, "bytes") == Some(bytes)
            && profile.names(sample)[0].ends_with("::recurses")
    };
    let samples: Vec<_> = profile.sample.iter().filter(is_of_recursion).collect();
    assert_eq!(samples.len(), 1);
    let locations = &samples[0].location_id;
    let leaf = functions(&profile, locations[0]);
    assert_eq!(leaf.len(), 1, "{leaf:?}");
    // All turns make the same call.
    let turn = locations[1];
    assert_eq!(locations[1..=TURNS], [turn; TURNS]);
    let names = functions(&profile, turn);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("::turns") && names[1].ends_with("::recurses"));
    let caller = functions(&profile, locations[TURNS + 1]);
    assert!(
        !caller.iter().any(|name| name.ends_with("::recurses")),
        "{caller:?}"
    );
    drop(kept);
}

#[test]
fn turns_through_an_inlined_function_are_one_location_each() {
    child::run(
        "recursion::turns_through_an_inlined_function_are_one_location_each",
        "heap_rate=1",
        each_turn_is_one_location,
    );
}
