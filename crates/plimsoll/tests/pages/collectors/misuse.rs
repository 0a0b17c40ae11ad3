//! Guards used out of order: the behaviour is defined, and the statistics stay consistent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use plimsoll::gc::{Cause, Collector, Error, MAX_NAMES};
use plimsoll::mem_stats;

use super::{assert_relations, child, collect, spin};

fn tested(name: &str, test: fn()) {
    child::run(&format!("misuse::{name}"), "heap_rate=1", test);
}

#[test]
fn names_are_checked() {
    tested("names_are_checked", || {
        assert_eq!(Collector::register("").unwrap_err(), Error::EmptyName);
        let long = "x".repeat(129);
        let error = Collector::register(&long).unwrap_err();
        assert_eq!(error, Error::LongName(long.clone()));
        assert!(error.to_string().contains(&long));
        for number in 0..MAX_NAMES {
            Collector::register(&format!("collector {number}")).unwrap();
        }
        let error = Collector::register("one more").unwrap_err();
        assert_eq!(error, Error::TooManyNames("one more".into()));
        Collector::register("collector 3").expect("the name is there");
    });
}

#[test]
fn a_cycle_that_is_dropped_half_way_is_abandoned_and_its_pauses_are_the_next_ones() {
    let name = "a_cycle_that_is_dropped_half_way_is_abandoned_and_its_pauses_are_the_next_ones";
    tested(name, || {
        let collector = Collector::register("script").unwrap();
        let cycle = collector.begin(Cause::Forced);
        let pause = cycle.pause();
        spin(Duration::from_millis(2));
        pause.end();
        // A mark termination that is not finished counts as an ordinary pause.
        drop(cycle.mark_termination());
        drop(cycle);
        let stats = mem_stats();
        assert_relations(&stats);
        assert_eq!((stats.num_gc, stats.pause_total_ns), (0, 0));
        let abandoned = collector.stats();
        assert_eq!((abandoned.abandoned_cycles, abandoned.pauses), (1, 2));
        collect(&collector, Cause::Automatic);
        let stats = mem_stats();
        assert_relations(&stats);
        assert_eq!((stats.num_gc, stats.num_forced_gc), (1, 0));
        assert!(stats.pause_total_ns >= 2_000_000);
        assert_eq!(collector.stats().misuses, 0);
    });
}

#[test]
fn a_panic_inside_ends_the_current_phase() {
    tested("a_panic_inside_ends_the_current_phase", || {
        let collector = Collector::register("script").unwrap();
        let inside: [fn(&Collector); 4] = [
            |collector| {
                let cycle = collector.begin(Cause::Forced);
                let _pause = cycle.pause();
                panic!("a panic requested by the test");
            },
            |collector| {
                let cycle = collector.begin(Cause::Forced);
                let _termination = cycle.mark_termination();
                panic!("a panic requested by the test");
            },
            |collector| {
                let cycle = collector.begin(Cause::Forced);
                cycle.mark_termination().finish(1, 2);
                let _sweep = cycle.sweep();
                let _pause = cycle.pause();
                panic!("a panic requested by the test");
            },
            |collector| {
                let _cycle = collector.begin(Cause::Forced);
                panic!("a panic requested by the test");
            },
        ];
        for inside in inside {
            assert!(catch_unwind(AssertUnwindSafe(|| inside(&collector))).is_err());
            assert_relations(&mem_stats());
        }
        let stats = collector.stats();
        assert_eq!((stats.cycles, stats.abandoned_cycles), (1, 3));
        collect(&collector, Cause::Forced);
        assert_eq!(
            (collector.stats().cycles, collector.stats().misuses),
            (2, 0)
        );
        assert_relations(&mem_stats());
    });
}

#[test]
fn a_cycle_within_a_cycle_takes_its_place() {
    tested("a_cycle_within_a_cycle_takes_its_place", || {
        let collector = Collector::register("script").unwrap();
        let outer = collector.begin(Cause::Automatic);
        let inner = collector.begin(Cause::Forced);
        assert_eq!(collector.stats().misuses, 1);
        outer.mark_termination().finish(1, 1);
        assert_eq!(
            (collector.stats().cycles, collector.stats().misuses),
            (0, 2)
        );
        drop(outer.sweep());
        assert_eq!(collector.stats().misuses, 3);
        inner.mark_termination().finish(5, 7);
        outer.end();
        drop(inner.sweep());
        inner.end();
        let stats = collector.stats();
        assert_eq!((stats.cycles, stats.forced_cycles), (1, 1));
        assert_eq!((stats.abandoned_cycles, stats.misuses), (1, 3));
        assert_eq!((stats.live_bytes, stats.goal_bytes), (5, 7));
        assert_relations(&mem_stats());
    });
}

#[test]
fn early_and_repeated_calls_are_only_counted() {
    tested("early_and_repeated_calls_are_only_counted", || {
        let collector = Collector::register("script").unwrap();
        let cycle = collector.begin(Cause::Automatic);
        drop(cycle.sweep());
        assert_eq!(collector.stats().misuses, 1, "nothing was marked");
        cycle.mark_termination().finish(1, 1);
        cycle.mark_termination().finish(2, 2);
        let stats = collector.stats();
        assert_eq!((stats.cycles, stats.misuses, stats.live_bytes), (1, 2, 1));
        assert_relations(&mem_stats());
        // These guards outlive their cycle.
        let (pause, sweep) = (cycle.pause(), cycle.sweep());
        cycle.end();
        spin(Duration::from_millis(1));
        pause.end();
        drop(sweep);
        let stats = mem_stats();
        assert_relations(&stats);
        assert!(stats.num_gc == 1 && stats.pause_total_ns >= 1_000_000);
        // These guards also outlive the collector, whose slot another one then takes.
        let cycle = collector.begin(Cause::Automatic);
        let (pause, termination) = (cycle.pause(), cycle.mark_termination());
        drop((cycle, collector));
        let other = Collector::register("other").unwrap();
        let open = other.begin(Cause::Automatic);
        spin(Duration::from_millis(1));
        termination.finish(7, 7);
        pause.end();
        let of_other = other.stats();
        assert_eq!((of_other.cycles, of_other.pauses), (0, 0));
        open.end();
        assert_relations(&mem_stats());
        assert_eq!(mem_stats().pause_total_ns, stats.pause_total_ns);
    });
}

#[test]
fn a_cycle_that_is_forgotten_is_replaced_by_the_next() {
    tested("a_cycle_that_is_forgotten_is_replaced_by_the_next", || {
        let collector = Collector::register("script").unwrap();
        for terminated in [false, true] {
            let cycle = collector.begin(Cause::Automatic);
            if terminated {
                cycle.mark_termination().finish(0, 0);
            }
            std::mem::forget((cycle.pause(), cycle));
            let pauses = collector.stats().pauses;
            collect(&collector, Cause::Forced);
            assert_eq!(collector.stats().pauses, pauses + 2);
        }
        let stats = collector.stats();
        assert_eq!(
            (stats.cycles, stats.abandoned_cycles, stats.misuses),
            (3, 1, 2)
        );
        assert_relations(&mem_stats());
    });
}

/// Values that no real collector reports.
#[test]
fn the_largest_values_are_summed_without_wrapping() {
    tested("the_largest_values_are_summed_without_wrapping", || {
        let collectors = [1, 2, 3].map(|_| Collector::register("script").unwrap());
        for collector in &collectors {
            let cycle = collector.begin(Cause::Automatic);
            let mut termination = cycle.mark_termination();
            termination.scanned(u64::MAX, u64::MAX, u64::MAX);
            termination.finish(u64::MAX, u64::MAX);
        }
        let stats = mem_stats();
        assert_relations(&stats);
        assert_eq!((stats.num_gc, stats.next_gc), (3, u64::MAX));
    });
}
