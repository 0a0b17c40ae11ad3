//! Counts and times of cycles and pauses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::gc::{self, Cause, Collector, Counter, CpuClass};
use plimsoll::stats::GcStats;
use plimsoll::{cpu_stats, gc_stats, mem_stats};

use super::relations::allocates_nothing;
use super::{assert_relations, child, collect, spin};

#[test]
fn gc_statistics_are_zero_without_a_collector() {
    child::run(
        "figures::gc_statistics_are_zero_without_a_collector",
        "",
        || {
            let stats = mem_stats();
            assert_relations(&stats);
            assert_eq!((stats.num_gc, stats.last_gc, stats.next_gc), (0, 0, 0));
            assert!(!stats.enable_gc && stats.gc_cpu_fraction == 0.0);
            let stats = gc_stats();
            assert_eq!((stats.num_gc, stats.last_gc), (0, None));
            assert_eq!(stats.pause_quantiles, [Duration::ZERO; 5]);
            assert!(gc::collectors().is_empty());
            assert!(gc::collect(Duration::ZERO), "no collector to wait for");
        },
    );
}

/// Cases 4 to 6, 22 to 24, and 26: the first cycles, the wrap of the rings, and beyond.
#[test]
fn the_statistics_agree_with_one_another_from_the_first_cycle_to_the_thousandth() {
    let name =
        "figures::the_statistics_agree_with_one_another_from_the_first_cycle_to_the_thousandth";
    child::run(name, "", || {
        let collector = Collector::register("script").unwrap();
        let mut gc = GcStats::with_quantiles(5);
        for number in 1..=600u32 {
            let cause = if number % 3 == 0 {
                Cause::Forced
            } else {
                Cause::Automatic
            };
            collect(&collector, cause);
            gc.read();
            let mem = mem_stats();
            assert_relations(&mem);
            assert_eq!((mem.num_gc, mem.num_forced_gc), (number, number / 3));
            assert!(mem.pause_ns[(number as usize - 1) % 256] >= 15_000);
            assert_eq!((mem.next_gc, mem.enable_gc), (2 << 20, true));

            assert_eq!(gc.num_gc, u64::from(number));
            assert_eq!(gc.pause_total, Duration::from_nanos(mem.pause_total_ns));
            let unix = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
            assert_eq!(gc.last_gc, Some(unix(mem.last_gc)));
            let length = (number as usize).min(256);
            assert_eq!((gc.pause.len(), gc.pause_end.len()), (length, length));
            for (back, (&pause, &end)) in gc.pause.iter().zip(&gc.pause_end).enumerate() {
                let at = (number as usize - 1 - back) % 256;
                assert_eq!(pause, Duration::from_nanos(mem.pause_ns[at]));
                assert_eq!(end, unix(mem.pause_end[at]));
            }
            assert_eq!(gc.pause_quantiles[0], *gc.pause.iter().min().unwrap());
            assert_eq!(gc.pause_quantiles[4], *gc.pause.iter().max().unwrap());
            assert!(gc.pause_quantiles.is_sorted());
        }
    });
}

#[test]
fn a_second_reading_allocates_nothing() {
    child::run("figures::a_second_reading_allocates_nothing", "", || {
        let collector = Collector::register("script").unwrap();
        let mut gc = GcStats::with_quantiles(5);
        gc.read();
        mem_stats();
        for _ in 0..300 {
            collect(&collector, Cause::Automatic);
            assert!(allocates_nothing(|| gc.read()));
        }
        assert_eq!(gc.pause.len(), 256);
    });
}

/// A cycle and its guards allocate nothing.
#[test]
fn a_cycle_allocates_nothing() {
    child::run("figures::a_cycle_allocates_nothing", "heap_rate=1", || {
        let collector = Collector::register("script").unwrap();
        collect(&collector, Cause::Forced);
        assert!(allocates_nothing(|| {
            collect(&collector, Cause::Forced);
            collector.set_metadata_bytes(5);
            drop(collector.work(CpuClass::MarkAssist));
        }));
    });
}

/// Case 25.
#[test]
fn the_last_end_is_within_the_collection() {
    child::run("figures::the_last_end_is_within_the_collection", "", || {
        let collector = Collector::register("script").unwrap();
        let before = SystemTime::now();
        collect(&collector, Cause::Forced);
        let after = SystemTime::now();
        let last = gc_stats().last_gc.unwrap();
        assert!(before <= last && last <= after);
        assert_eq!(collector.stats().last_end, Some(last));
    });
}

/// Case 31: the pauses of a cycle are summed, including those during the sweep.
#[test]
fn the_pauses_of_a_cycle_are_one_entry() {
    child::run("figures::the_pauses_of_a_cycle_are_one_entry", "", || {
        let collector = Collector::register("script").unwrap();
        let pause = Duration::from_millis(2);
        let cycle = collector.begin(Cause::Automatic);
        let guard = cycle.pause();
        spin(pause);
        guard.end();
        assert_eq!(mem_stats().pause_total_ns, 0, "the cycle is not completed");
        let guard = cycle.mark_termination();
        spin(pause);
        guard.finish(0, 0);
        let marked = mem_stats();
        assert_relations(&marked);
        assert!(marked.pause_ns[0] >= 4_000_000);
        let guard = cycle.pause();
        let sweep = cycle.sweep();
        spin(pause);
        drop(sweep);
        guard.end();
        let swept = mem_stats();
        assert_relations(&swept);
        assert!(swept.pause_ns[0] >= marked.pause_ns[0] + 2_000_000);
        assert_eq!(swept.pause_end[0], marked.pause_end[0]);
        cycle.end();
        let stats = collector.stats();
        assert_eq!((stats.cycles, stats.pauses, stats.misuses), (1, 3, 0));
    });
}

/// Overlapping pauses count as one, from the first start to the last end.
#[test]
fn a_pause_within_a_pause_is_part_of_it() {
    child::run("figures::a_pause_within_a_pause_is_part_of_it", "", || {
        let collector = Collector::register("script").unwrap();
        let cycle = collector.begin(Cause::Automatic);
        let began = std::time::Instant::now();
        let (outer, inner) = (cycle.pause(), cycle.pause());
        spin(Duration::from_millis(1));
        outer.end();
        spin(Duration::from_millis(1));
        inner.end();
        let outer = cycle.pause();
        cycle.mark_termination().finish(0, 0);
        spin(Duration::from_millis(1));
        outer.end();
        let took = began.elapsed();
        let stats = collector.stats();
        assert_eq!((stats.cycles, stats.pauses), (1, 2));
        assert!(stats.pause_total >= Duration::from_millis(3) && stats.pause_total <= took);
        assert_eq!(
            Duration::from_nanos(mem_stats().pause_ns[0]),
            stats.pause_total
        );
    });
}

/// Sums cover all present and past collectors; each name also has separate figures.
#[test]
fn the_sums_of_several_collectors_outlive_them() {
    let name = "figures::the_sums_of_several_collectors_outlive_them";
    child::run(name, "", || {
        let one = Collector::register("one").unwrap();
        let others: Vec<_> = (0..3)
            .map(|_| Collector::register_local("other").unwrap())
            .collect();
        for round in 0..100 {
            collect(&one, Cause::Automatic);
            collect(&others[round % 3], Cause::Forced);
        }
        one.set_metadata_bytes(1000);
        one.add(Counter::FinalizersQueued, 7);
        let together = mem_stats();
        assert_relations(&together);
        assert_eq!((together.num_gc, together.num_forced_gc), (200, 100));
        assert_eq!((together.next_gc, together.gc_sys), (8 << 20, 1000));
        assert!(together.pause_end[..200].is_sorted());

        let of = |name| {
            gc::collectors()
                .into_iter()
                .find(|stats| stats.name == name)
        };
        assert_eq!(
            (of("one").unwrap().cycles, of("one").unwrap().attached),
            (100, 1)
        );
        let other = of("other").unwrap();
        assert_eq!(
            (other.cycles, other.forced_cycles, other.attached),
            (100, 100, 3)
        );
        assert_eq!((other.live_bytes, other.goal_bytes), (3 << 20, 6 << 20));

        drop(others);
        for _ in 0..100 {
            collect(&one, Cause::Automatic);
        }
        let later = mem_stats();
        assert_relations(&later);
        assert_eq!((later.num_gc, later.num_forced_gc), (300, 100));
        assert_eq!(
            later.next_gc,
            2 << 20,
            "goals are those of the registered collectors"
        );
        let other = of("other").unwrap();
        assert_eq!(
            (other.cycles, other.attached, other.live_bytes),
            (100, 0, 0)
        );
        // The newest 256 pauses are the last 100, of `one` alone, and the 156 before them.
        let at = |number: usize| later.pause_end[number % 256];
        assert_eq!(at(299), later.last_gc);
        assert_eq!(at(199), together.last_gc);
        drop(one);
        let gone = mem_stats();
        assert_relations(&gone);
        assert_eq!((gone.num_gc, gone.pause_end), (300, later.pause_end));
        assert!(!gone.enable_gc && gone.gc_sys == 0);
    });
}

/// Cases 30 and 46.
#[test]
fn processor_time_adds_up_exactly_and_never_falls() {
    child::run(
        "figures::processor_time_adds_up_exactly_and_never_falls",
        "",
        || {
            let collector = Collector::register("script").unwrap();
            let mut last = cpu_stats();
            let check = |last: &mut plimsoll::CpuStats| {
                let now = cpu_stats();
                let gc =
                    now.gc_mark_assist + now.gc_mark_dedicated + now.gc_mark_idle + now.gc_pause;
                assert_eq!(gc, now.gc_total);
                assert_eq!(
                    now.scavenge_assist + now.scavenge_background,
                    now.scavenge_total
                );
                let all = now.gc_total + now.scavenge_total + now.idle + now.user;
                assert_eq!(all, now.total);
                assert!(now.user >= last.user && now.idle >= last.idle && now.total >= last.total);
                assert!(now.gc_total >= last.gc_total);
                *last = now;
                now
            };
            for _ in 0..50 {
                collect(&collector, Cause::Automatic);
                let work = collector.work(CpuClass::MarkDedicated);
                spin(Duration::from_micros(200));
                drop(work);
                check(&mut last);
                collector.add_cpu_time(CpuClass::MarkAssist, Duration::from_micros(300));
                collector.add_cpu_time(CpuClass::ScavengeBackground, Duration::from_micros(30));
                check(&mut last);
            }
            let worked = check(&mut last);
            assert!(
                worked.gc_mark_dedicated >= Duration::from_millis(5),
                "{worked:?}"
            );
            assert_eq!(worked.gc_mark_assist, Duration::from_millis(15));
            assert_eq!(worked.scavenge_total, Duration::from_micros(1500));
            assert!(worked.gc_pause > Duration::ZERO);
            let fraction = mem_stats().gc_cpu_fraction;
            assert!(fraction > 0.0 && fraction < 1.0, "{fraction}");
            // More time than possible: no statistic breaks.
            collector.add_cpu_time(CpuClass::MarkIdle, Duration::MAX);
            collector.add_cpu_time(CpuClass::MarkIdle, Duration::MAX);
            let beyond = check(&mut last);
            assert!(beyond.gc_mark_idle > Duration::from_secs(1 << 29));
            assert_relations(&mem_stats());
        },
    );
}

#[test]
fn sleeping_is_idleness() {
    child::run("figures::sleeping_is_idleness", "", || {
        let processors = std::thread::available_parallelism().unwrap().get() as f64;
        let grew = (0..10).any(|_| {
            let before = cpu_stats().idle;
            std::thread::sleep(Duration::from_millis(100));
            let idle = (cpu_stats().idle - before).as_secs_f64();
            idle >= 0.1 * (processors - 0.5)
        });
        assert!(grew);
    });
}
