//! Metrics compared with the statistics to which they belong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::gc::{self, Cause, Collector, Counter, CpuClass};
use plimsoll::{heap_stats, mem_stats};

use super::relations::{Until, allocates_nothing};
use super::{Everything, child, collect};

fn tested(name: &str, test: fn()) {
    child::run(&format!("agreement::{name}"), "", test);
}

/// Cases 37 to 41: in a process without other work, reads the metrics twice with the statistics in
/// between.
#[test]
fn metrics_are_the_fields_of_the_statistics() {
    tested("metrics_are_the_fields_of_the_statistics", || {
        let collector = Collector::register("script").unwrap();
        collector.set_metadata_bytes(12_345);
        gc::set_memory_limit(512 << 20);
        gc::set_percent(99);
        collect(&collector, Cause::Forced);
        collect(&collector, Cause::Automatic);
        let mut all = Everything::now();
        all.read();
        // The second reading: the first has made the allocations that readings need.
        all.read();
        // The test's own threads may allocate once or twice meanwhile.
        let mut undisturbed = || {
            let (before, mem) = (heap_stats(), mem_stats());
            all.read();
            (heap_stats() == before).then_some(mem)
        };
        let mem = (0..20).find_map(|_| undisturbed());
        let mem = mem.expect("the program does something else");

        for (name, expected) in [
            (
                "/memory/classes/heap/free:bytes",
                mem.heap_idle - mem.heap_released,
            ),
            ("/memory/classes/heap/released:bytes", mem.heap_released),
            ("/memory/classes/heap/objects:bytes", mem.heap_alloc),
            (
                "/memory/classes/heap/unused:bytes",
                mem.heap_inuse - mem.heap_alloc,
            ),
            ("/memory/classes/heap/stacks:bytes", mem.stack_inuse),
            (
                "/memory/classes/metadata/mcache/free:bytes",
                mem.mcache_sys - mem.mcache_inuse,
            ),
            (
                "/memory/classes/metadata/mcache/inuse:bytes",
                mem.mcache_inuse,
            ),
            (
                "/memory/classes/metadata/mspan/free:bytes",
                mem.mspan_sys - mem.mspan_inuse,
            ),
            (
                "/memory/classes/metadata/mspan/inuse:bytes",
                mem.mspan_inuse,
            ),
            ("/memory/classes/metadata/other:bytes", mem.gc_sys),
            (
                "/memory/classes/os-stacks:bytes",
                mem.stack_sys - mem.stack_inuse,
            ),
            ("/memory/classes/other:bytes", mem.other_sys),
            ("/memory/classes/profiling/buckets:bytes", mem.buck_hash_sys),
            ("/memory/classes/total:bytes", mem.sys),
            ("/gc/heap/allocs:bytes", mem.total_alloc),
            ("/gc/heap/frees:bytes", mem.total_alloc - mem.heap_alloc),
            ("/gc/heap/objects:objects", mem.heap_objects),
            ("/gc/heap/goal:bytes", mem.next_gc),
            ("/gc/heap/tiny/allocs:objects", 0),
            ("/gc/heap/allocs:objects", mem.mallocs),
            ("/gc/heap/frees:objects", mem.frees),
            ("/gc/cycles/total:gc-cycles", u64::from(mem.num_gc)),
            ("/gc/cycles/forced:gc-cycles", u64::from(mem.num_forced_gc)),
            (
                "/gc/cycles/automatic:gc-cycles",
                u64::from(mem.num_gc - mem.num_forced_gc),
            ),
            ("/gc/gomemlimit:bytes", 512 << 20),
            ("/gc/gogc:percent", 99),
        ] {
            assert_eq!(all.number(name), expected, "{name}");
        }
        assert_eq!((mem.num_gc, mem.gc_sys, mem.next_gc), (2, 12_345, 6 << 20));

        // Case 38.
        for (name, of) in [
            (
                "/gc/heap/allocs-by-size:bytes",
                (|size| size.mallocs) as fn(plimsoll::stats::BySize) -> u64,
            ),
            ("/gc/heap/frees-by-size:bytes", |size| size.frees),
        ] {
            let histogram = all.histogram(name);
            assert_eq!(histogram.counts.len(), 68);
            assert_eq!(histogram.buckets[..6], [1.0, 9.0, 17.0, 25.0, 33.0, 49.0]);
            assert_eq!(histogram.buckets[66..], [28673.0, 32769.0, f64::INFINITY]);
            for (class, &size) in mem.by_size.iter().enumerate().skip(1) {
                assert_eq!(histogram.buckets[class], f64::from(size.size) + 1.0);
                assert_eq!(histogram.counts[class - 1], of(size), "{name} {class}");
            }
        }
        // Case 39.
        let sum = |name| all.histogram(name).total();
        assert_eq!(sum("/gc/heap/allocs-by-size:bytes"), mem.mallocs);
        assert_eq!(sum("/gc/heap/frees-by-size:bytes"), mem.frees);
        // Case 41.
        let pauses = all.histogram("/gc/pauses:seconds");
        assert_eq!(pauses, all.histogram("/sched/pauses/total/gc:seconds"));
        assert_eq!(pauses.total(), 4);
        assert_eq!(
            all.histogram("/sched/pauses/stopping/gc:seconds").total(),
            4
        );

        gc::set_percent(-1);
        all.read();
        assert_eq!(all.number("/gc/gogc:percent"), u64::MAX);
    });
}

/// Cases 40 and 48.
#[test]
fn metrics_agree_with_the_collectors_reports() {
    tested("metrics_agree_with_the_collectors_reports", || {
        let collector = Collector::register("script").unwrap();
        let none = Everything::now();
        assert_eq!(none.number("/gc/heap/live:bytes"), 0);
        collect(&collector, Cause::Automatic);
        for (counter, count) in [
            (Counter::FinalizersQueued, 10),
            (Counter::FinalizersExecuted, 9),
            (Counter::CleanupsQueued, 8),
            (Counter::CleanupsExecuted, 7),
        ] {
            collector.add(counter, count);
        }
        let all = Everything::now();
        assert_eq!(all.number("/gc/heap/live:bytes"), 3 << 20);
        assert_eq!(all.number("/gc/scan/total:bytes"), (3 << 20) + (3 << 10));
        let counts = [
            "finalizers/queued:finalizers",
            "finalizers/executed:finalizers",
            "cleanups/queued:cleanups",
            "cleanups/executed:cleanups",
        ];
        assert_eq!(
            counts.map(|name| all.number(&format!("/gc/{name}"))),
            [10, 9, 8, 7]
        );
        drop(collector.begin(Cause::Automatic));
        drop(collector.begin(Cause::Automatic).sweep());
        let all = Everything::now();
        assert_eq!(all.number("/plimsoll/gc/abandoned:gc-cycles"), 2);
        assert_eq!(all.number("/plimsoll/gc/misuses:events"), 1);
    });
}

/// Case 43.
#[test]
fn classes_of_processor_time_add_up() {
    tested("classes_of_processor_time_add_up", || {
        let collector = Collector::register("script").unwrap();
        for _ in 0..10 {
            collect(&collector, Cause::Automatic);
        }
        collector.add_cpu_time(CpuClass::MarkAssist, Duration::from_millis(3));
        collector.add_cpu_time(CpuClass::ScavengeAssist, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(20));
        // The time that the collector reports counts as a part of what the process used, which may be less.
        let all = loop {
            let all = Everything::now();
            if all.seconds("/cpu/classes/user:cpu-seconds") > 0.0 {
                break all;
            }
        };
        let class = |name: &str| all.seconds(&format!("/cpu/classes/{name}:cpu-seconds"));
        let near = |sum: f64, total: f64| (sum - total).abs() <= 0.001 * total;
        let gc = class("gc/mark/assist")
            + class("gc/mark/dedicated")
            + class("gc/mark/idle")
            + class("gc/pause");
        assert!(gc > 0.003 && near(gc, class("gc/total")), "{gc}");
        let scavenge = class("scavenge/assist") + class("scavenge/background");
        assert!(near(scavenge, class("scavenge/total")) && scavenge > 0.0);
        let total = class("gc/total") + class("scavenge/total") + class("user") + class("idle");
        assert!(near(total, class("total")), "{total}");
        assert!(class("idle") > 0.0);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn resident_memory_grows_with_touched_pages() {
    tested("resident_memory_grows_with_touched_pages", || {
        const TOUCHED: u64 = 64 << 20;
        let read = || {
            let all = Everything::now();
            let anonymous = all.number("/plimsoll/memory/resident-anonymous:bytes");
            (anonymous, all.number("/plimsoll/memory/resident:bytes"))
        };
        let (anonymous, resident) = read();
        // The program's own code is resident and belongs to a file.
        assert!(0 < anonymous && anonymous < resident);
        let memory = std::hint::black_box(vec![1_u8; TOUCHED as usize]);
        let after = read();
        // The kernel's counters lag by some pages for each processor.
        let nearly_all = TOUCHED / 100 * 95;
        assert!(after.0 >= anonymous + nearly_all && after.1 >= resident + nearly_all);
        drop(memory);
    });
}

/// Case 45, with locks of the standard library, which do not use Plimsoll.
#[test]
fn waits_for_locks_are_in_the_total() {
    child::run(
        "agreement::waits_for_locks_are_in_the_total",
        "block_rate=1ns",
        || {
            let _plimsoll = plimsoll::start();
            let hold = Duration::from_millis(100);
            let waited = |work: &dyn Fn()| {
                let name = "/sync/mutex/wait/total:seconds";
                let before = Everything::now().seconds(name);
                work();
                Everything::now().seconds(name) - before
            };
            let mutex = plimsoll::sync::Mutex::new(());
            let rwlock = plimsoll::sync::RwLock::new(());
            type Held<'a> = Box<dyn Fn(&dyn Fn()) + Sync + 'a>;
            let lock: Held = Box::new(|inside| {
                let _guard = mutex.lock().unwrap();
                inside();
            });
            let write: Held = Box::new(|inside| {
                let _guard = rwlock.write().unwrap();
                inside();
            });
            let read: Held = Box::new(|inside| {
                let _guard = rwlock.read().unwrap();
                inside();
            });
            for (what, holder, waiter) in [
                ("mutex", &lock, &lock),
                ("writers", &write, &write),
                ("a reader, then a writer", &read, &write),
                ("a writer, then a reader", &write, &read),
            ] {
                let waits_as_long = || {
                    let begun = AtomicBool::new(false);
                    let work = || {
                        std::thread::scope(|scope| {
                            holder(&|| {
                                scope.spawn(|| {
                                    begun.store(true, Ordering::Relaxed);
                                    waiter(&|| {});
                                });
                                while !begun.load(Ordering::Relaxed) {
                                    std::thread::yield_now();
                                }
                                std::thread::sleep(hold);
                            });
                        });
                    };
                    waited(&work) >= 0.1
                };
                // The waiter may lose its processor before it waits.
                assert!((0..20).any(|_| waits_as_long()), "{what}");
            }
        },
    );
}

/// Counts grow by the number of new threads and tasks.
#[test]
fn threads_and_tasks_are_goroutines() {
    tested("threads_and_tasks_are_goroutines", || {
        use plimsoll::task::TrackExt;
        let before = Everything::now();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let receive = std::sync::Mutex::new(receive);
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let _ = receive.lock().unwrap().recv();
                });
            }
            let tasks: Vec<_> = (0..7).map(|_| async {}.tracked()).collect();
            let during = Everything::now();
            let grew = |name: &str| during.number(name) - before.number(name);
            assert_eq!(grew("/sched/threads/total:threads"), 10);
            assert_eq!(grew("/sched/goroutines/not-in-go:goroutines"), 10);
            assert_eq!(grew("/sched/goroutines:goroutines"), 17);
            assert_eq!(grew("/plimsoll/tasks/new:tasks"), 7);
            assert_eq!(grew("/sched/goroutines/runnable:goroutines"), 7);
            assert_eq!(grew("/plimsoll/tasks/created:tasks"), 7);
            drop((tasks, send));
        });
        let after = Everything::now();
        assert_eq!(after.number("/plimsoll/tasks:tasks"), 0);
        assert!(after.number("/sched/gomaxprocs:threads") >= 1);
    });
}

/// The system schedules threads: busy ones are not `running` either. Threads and tasks that have ended still count as
/// created.
#[test]
fn busy_threads_are_not_in_go_and_ended_ones_stay_created() {
    tested(
        "busy_threads_are_not_in_go_and_ended_ones_stay_created",
        || {
            use plimsoll::task::TrackExt;
            const BUSY: u64 = 4;
            let before = Everything::now();
            let (started, over) = (AtomicU64::new(0), AtomicBool::new(false));
            let grew = |now: &Everything, name: &str| now.number(name) - before.number(name);
            let created = "/sched/goroutines-created:goroutines";
            let seen = if cfg!(feature = "interpose") { BUSY } else { 0 };
            std::thread::scope(|scope| {
                let _over = Until(&over);
                for _ in 0..BUSY {
                    scope.spawn(|| {
                        started.fetch_add(1, Ordering::Relaxed);
                        while !over.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                while started.load(Ordering::Relaxed) < BUSY {
                    std::thread::yield_now();
                }
                let during = Everything::now();
                let not_in_go = grew(&during, "/sched/goroutines/not-in-go:goroutines");
                assert_eq!(not_in_go, BUSY);
                assert_eq!(during.number("/sched/goroutines/running:goroutines"), 0);
                assert_eq!(grew(&during, created), seen);
            });
            drop(async {}.tracked());
            let after = Everything::now();
            assert_eq!(after.number("/plimsoll/tasks:tasks"), 0);
            assert_eq!(grew(&after, created), seen + 1);
        },
    );
}

/// A second reading reuses the memory of the first.
#[test]
fn a_second_reading_allocates_nothing() {
    tested("a_second_reading_allocates_nothing", || {
        let mut all = Everything::now();
        for _ in 0..100 {
            assert!(allocates_nothing(|| all.read()));
        }
        assert!(all.seconds("/plimsoll/self:cpu-seconds") > 0.0);
    });
}
