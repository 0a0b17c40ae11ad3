//! The heap profile while a collector is registered: Go's three slots.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::gc::{Cause, Collector, Cycle};
use plimsoll::profile::{self, Detail, Format};
use plimsoll_checks::profile::read_with_idle;

use super::child;
use super::relations::Until;

/// An object of a collected heap. Its size and a label distinguish it from all other samples.
type Object<const SIZE: usize> = Box<[u8; SIZE]>;

fn objects<const SIZE: usize>(count: usize) -> Vec<Object<SIZE>> {
    let _label = plimsoll::label::with([LABEL]);
    let mut objects = Vec::with_capacity(count);
    objects.resize_with(count, || Box::new(std::hint::black_box([1; SIZE])));
    objects
}

/// Returns how many objects of a size were allocated and are in use, according to the profile.
fn shown<const SIZE: usize>() -> [i64; 2] {
    // Without names, which take long to find and are not needed.
    let profile = read_with_idle("heap", Detail::Addresses);
    let mut sums = [0; 2];
    for sample in &profile.sample {
        let size = profile.number(sample, "bytes");
        let [allocated, _, in_use, _] = sample.value[..] else {
            panic!("{:?}", sample.value)
        };
        assert!(
            0 <= in_use && in_use <= allocated,
            "{in_use} of {allocated}"
        );
        if size == Some(SIZE as i64) && profile.label(sample, LABEL.0) == Some(LABEL.1) {
            sums[0] += allocated;
            sums[1] += in_use;
        }
    }
    sums
}

fn marked(collector: &Collector, cause: Cause) -> Cycle {
    let cycle = collector.begin(cause);
    cycle.mark_termination().finish(0, 0);
    cycle
}

fn tested(name: &str, test: fn()) {
    child::run(&format!("heap_cycle::{name}"), "heap_rate=1", test);
}

/// The label of all objects.
const LABEL: (&str, &str) = ("heap", "collected");

/// The largest size of a class.
const SIZE: usize = 27_264;

#[test]
fn the_profile_is_current_until_the_first_mark_termination() {
    tested(
        "the_profile_is_current_until_the_first_mark_termination",
        || {
            let _collector = Collector::register("script").unwrap();
            let kept = objects::<SIZE>(10);
            assert_eq!(shown::<SIZE>(), [10, 10]);
            drop(kept);
            assert_eq!(shown::<SIZE>(), [10, 0]);
        },
    );
}

/// Follows the steps in Go's comments on its cycle.
#[test]
fn allocations_are_shown_when_their_death_has_had_its_chance() {
    tested(
        "allocations_are_shown_when_their_death_has_had_its_chance",
        || {
            let collector = Collector::register("script").unwrap();
            marked(&collector, Cause::Automatic).end();
            let (live, dead) = (objects::<SIZE>(7), objects::<SIZE>(5));
            assert_eq!(shown::<SIZE>(), [0, 0], "no mark termination yet");
            let cycle = marked(&collector, Cause::Automatic);
            assert_eq!(shown::<SIZE>(), [0, 0], "not swept yet");
            let sweep = cycle.sweep();
            drop(dead);
            drop(sweep);
            cycle.end();
            assert_eq!(shown::<SIZE>(), [0, 0], "the next one publishes");
            let late = objects::<SIZE>(100);
            let cycle = marked(&collector, Cause::Automatic);
            assert_eq!(shown::<SIZE>(), [12, 7]);
            let sweep = cycle.sweep();
            drop(live);
            assert_eq!(shown::<SIZE>(), [12, 7], "its sweep is another profile's");
            drop(sweep);
            cycle.end();
            marked(&collector, Cause::Automatic).end();
            assert_eq!(shown::<SIZE>(), [112, 100]);
            drop(late);
        },
    );
}

/// Case 68.
#[test]
fn a_forced_cycle_shows_itself_when_it_ends() {
    tested("a_forced_cycle_shows_itself_when_it_ends", || {
        let collector = Collector::register("script").unwrap();
        let (live, dead) = (objects::<SIZE>(7), objects::<SIZE>(5));
        let cycle = marked(&collector, Cause::Forced);
        let sweep = cycle.sweep();
        drop(dead);
        drop(sweep);
        let since = objects::<SIZE>(3);
        cycle.end();
        assert_eq!(shown::<SIZE>(), [12, 7]);
        marked(&collector, Cause::Forced).end();
        assert_eq!(shown::<SIZE>(), [15, 10]);
        drop((live, since));
    });
}

/// Explicit frees of the program appear together with its allocations.
#[test]
fn explicit_frees_are_shown_with_the_allocations_of_their_time() {
    tested(
        "explicit_frees_are_shown_with_the_allocations_of_their_time",
        || {
            let collector = Collector::register("script").unwrap();
            let old = objects::<SIZE>(4);
            marked(&collector, Cause::Automatic).end();
            marked(&collector, Cause::Automatic).end();
            assert_eq!(shown::<SIZE>(), [4, 4]);
            drop(old);
            marked(&collector, Cause::Automatic).end();
            assert_eq!(shown::<SIZE>(), [4, 4]);
            marked(&collector, Cause::Automatic).end();
            assert_eq!(shown::<SIZE>(), [4, 0]);
        },
    );
}

/// Finalizers allocate, free, and grow live data while the sweep runs.
#[test]
fn allocations_of_finalizers_in_a_sweep_are_harmless() {
    tested("allocations_of_finalizers_in_a_sweep_are_harmless", || {
        struct Finalized(Object<SIZE>);
        impl Drop for Finalized {
            fn drop(&mut self) {
                let own = objects::<1000>(2);
                let mut grown = Vec::<u64>::with_capacity(10);
                grown.resize(5000, u64::from(self.0[0]));
                drop((own, grown));
            }
        }
        let collector = Collector::register("script").unwrap();
        for round in 1..50 {
            let dead: Vec<_> = objects::<SIZE>(3).into_iter().map(Finalized).collect();
            let cause = if round % 2 == 0 {
                Cause::Forced
            } else {
                Cause::Automatic
            };
            let cycle = marked(&collector, cause);
            shown::<1000>();
            let sweep = cycle.sweep();
            drop(dead);
            drop(sweep);
            shown::<1000>();
            cycle.end();
            shown::<1000>();
        }
        marked(&collector, Cause::Forced).end();
        assert_eq!((shown::<SIZE>(), shown::<1000>()), ([147, 0], [294, 0]));
    });
}

/// The first collector to terminate its marking leads; the profile does not wait for the sweep of
/// the other.
#[test]
fn one_of_two_collectors_leads_and_no_event_is_lost() {
    tested("one_of_two_collectors_leads_and_no_event_is_lost", || {
        let (one, other) = (
            Collector::register("one").unwrap(),
            Collector::register("other").unwrap(),
        );
        let (ones, others) = (objects::<SIZE>(5), objects::<1000>(5));
        let led = marked(&one, Cause::Automatic);
        let beside = marked(&other, Cause::Forced);
        let sweep = beside.sweep();
        drop(others);
        drop(sweep);
        beside.end();
        let sweep = led.sweep();
        drop(ones);
        drop(sweep);
        led.end();
        marked(&other, Cause::Automatic).end();
        assert_eq!(shown::<SIZE>(), [5, 0]);
        assert_eq!(
            shown::<1000>(),
            [5, 5],
            "it was freed beside the leader's sweep"
        );
        marked(&one, Cause::Automatic).end();
        assert_eq!(shown::<1000>(), [5, 0]);
    });
}

#[test]
fn the_profile_is_current_again_without_collectors() {
    tested("the_profile_is_current_again_without_collectors", || {
        let collector = Collector::register("script").unwrap();
        let cycle = marked(&collector, Cause::Automatic);
        let kept = objects::<SIZE>(6);
        assert_eq!(shown::<SIZE>(), [0, 0]);
        drop(collector);
        assert_eq!(shown::<SIZE>(), [0, 0], "the cycle is still there");
        drop(cycle);
        assert_eq!(shown::<SIZE>(), [6, 6]);
        drop(kept);
        assert_eq!(shown::<SIZE>(), [6, 0]);
        // With another collector, from its first mark termination on, the profile is delayed again.
        let collector = Collector::register("script").unwrap();
        let kept = objects::<SIZE>(1);
        assert_eq!(shown::<SIZE>(), [7, 1]);
        marked(&collector, Cause::Automatic).end();
        drop(kept);
        assert_eq!(shown::<SIZE>(), [7, 1]);
    });
}

/// Other kinds of events are not delayed.
#[test]
fn only_the_heap_waits_for_collectors() {
    child::run(
        "heap_cycle::only_the_heap_waits_for_collectors",
        "heap_rate=1,block_rate=1ns",
        || {
            let collector = Collector::register("script").unwrap();
            marked(&collector, Cause::Automatic).end();
            let custom = profile::Profile::new("test.entries").unwrap();
            let entry = custom.add(0).unwrap();
            let count = || {
                let mut text = Vec::new();
                custom.write_to(&mut text, Format::Text).unwrap();
                String::from_utf8(text).unwrap()
            };
            assert!(count().contains("total 1"), "{}", count());
            drop(entry);
            assert!(count().contains("total 0"), "{}", count());
        },
    );
}

/// Threads allocate and free, two collectors collect, and profiles are read. In each profile, no
/// bucket has more frees than allocations; in the end, nothing is missing.
#[test]
fn no_profile_ever_shows_more_frees_than_allocations() {
    tested("no_profile_ever_shows_more_frees_than_allocations", || {
        let stop = AtomicBool::new(false);
        let made = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let stop = &stop;
                    scope.spawn(move || {
                        // Two of the threads collect the objects that they make.
                        let collector =
                            (worker < 2).then(|| Collector::register("worker").unwrap());
                        let mut made = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let garbage = objects::<SIZE>(20);
                            made += 20;
                            let Some(collector) = &collector else {
                                continue;
                            };
                            let forced = made % 3 == 0;
                            let cycle = collector.begin(if forced {
                                Cause::Forced
                            } else {
                                Cause::Automatic
                            });
                            cycle.mark_termination().finish(0, 0);
                            let sweep = cycle.sweep();
                            drop(garbage);
                            drop(sweep);
                            if made % 7 != 0 {
                                cycle.end();
                            }
                        }
                        made
                    })
                })
                .collect();
            let ended = Until(&stop);
            let mut last = [0; 2];
            for _ in 0..100 {
                let now = shown::<SIZE>();
                assert!(now[0] >= last[0], "allocations fell");
                assert!(now[0] - now[1] >= last[0] - last[1], "frees fell");
                last = now;
            }
            drop(ended);
            let made = workers.into_iter().map(|worker| worker.join().unwrap());
            made.sum::<i64>()
        });
        assert_eq!(shown::<SIZE>(), [made, 0]);
    });
}
