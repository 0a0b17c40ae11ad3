//! Go's tests of collections and of the figures read during them, with a real collector.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

use plimsoll_checks::relations;
use plimsoll_testkit::child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gc_arena::{Collect, Gc, Rootable};
use plimsoll::stats::GcStats;
use plimsoll::{cpu_stats, gc_stats, mem_stats, metrics};
use plimsoll_gc_arena::{Arena, Weight};

use relations::{Everything, Until, allocates_nothing, amount, assert_agreement, assert_relations};

#[derive(Collect)]
#[collect(no_drop)]
struct Tree<'gc> {
    branches: Vec<Gc<'gc, Tree<'gc>>>,
    weight: Weight,
}

#[derive(Default, Collect)]
#[collect(no_drop)]
struct Root<'gc> {
    kept: Vec<Gc<'gc, Tree<'gc>>>,
}

type Trees = Arena<Rootable![Root<'_>]>;

fn trees() -> Trees {
    Trees::with_name("trees", |_| Root::default()).unwrap()
}

fn tree<'gc>(mutation: &gc_arena::Mutation<'gc>, depth: usize) -> Gc<'gc, Tree<'gc>> {
    let branches: Vec<_> = (0..depth).map(|depth| tree(mutation, depth)).collect();
    let weight = Weight::of::<Tree>().and(branches.capacity() * size_of::<usize>());
    Gc::new(mutation, Tree { branches, weight })
}

/// Grows a tree, removes old ones, and collects the debt.
fn work(arena: &mut Trees) {
    arena.mutate_root(|mutation, root| {
        root.kept.push(tree(mutation, 6));
        if root.kept.len() > 20 {
            root.kept.drain(..10);
        }
    });
    arena.collect_debt();
}

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

/// Cases 4 to 6 and 22 to 25, for more cycles than the ring buffers hold.
#[test]
fn statistics_agree_after_every_collection() {
    tested("statistics_agree_after_every_collection", || {
        let mut arena = trees();
        let mut gc = GcStats::with_quantiles(5);
        for number in 1..=400u32 {
            let before = SystemTime::now();
            work(&mut arena);
            arena.finish_cycle();
            let after = SystemTime::now();
            gc.read();
            let mem = mem_stats();
            assert_relations(&mem);
            let cycles = u32::try_from(arena.cycles()).unwrap();
            assert!(cycles >= number && mem.num_gc == cycles);
            assert_eq!(gc.num_gc, u64::from(mem.num_gc));
            assert_eq!(gc.pause_total, Duration::from_nanos(mem.pause_total_ns));
            let unix = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
            assert_eq!(gc.last_gc, Some(unix(mem.last_gc)));
            let last = gc.last_gc.unwrap();
            assert!(before <= last && last <= after);
            assert_eq!(gc.pause.len(), (mem.num_gc as usize).min(256));
            for (back, (&pause, &end)) in gc.pause.iter().zip(&gc.pause_end).enumerate() {
                let at = (mem.num_gc as usize - 1 - back) % 256;
                assert_eq!(pause, Duration::from_nanos(mem.pause_ns[at]));
                assert_eq!(end, unix(mem.pause_end[at]));
            }
            assert!(gc.pause_quantiles.is_sorted());
            assert_eq!(gc.pause_quantiles[4], *gc.pause.iter().max().unwrap());
        }
        assert!(allocates_nothing(|| gc.read()), "case 24");
    });
}

/// Case 26, and `runtime.GC` on the collecting thread.
#[test]
fn a_forced_collection_runs_where_none_begins_by_itself() {
    let name = "a_forced_collection_runs_where_none_begins_by_itself";
    tested(name, || {
        let mut arena = trees();
        arena.follow_percent();
        assert_eq!(plimsoll::gc::set_percent(-1), 100);
        for _ in 0..200 {
            work(&mut arena);
        }
        assert_eq!(mem_stats().num_gc, 0);
        assert!(
            !plimsoll::gc::collect(Duration::ZERO),
            "a collection is requested"
        );
        work(&mut arena);
        let stats = mem_stats();
        assert_eq!((stats.num_gc, stats.num_forced_gc), (1, 1));
    });
}

/// Cases 37, 40 to 44, 46 and 51, in each reading while an arena and the program allocate.
#[test]
fn metrics_agree_in_every_reading_beside_an_arena() {
    tested("metrics_agree_in_every_reading_beside_an_arena", || {
        let stop = AtomicBool::new(false);
        let runs = || !stop.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while runs() {
                    let mut arena = trees();
                    for _ in 0..100 {
                        work(&mut arena);
                    }
                    arena.finish_cycle();
                }
            });
            scope.spawn(|| {
                while runs() {
                    drop(std::hint::black_box(vec![1u8; 1 << 20]));
                }
            });
            let _ended = Until(&stop);
            let mut all = Everything::now();
            let mut before = all.samples.clone();
            let mut live = 0;
            let mut reads = 0;
            while reads < 1000 || all.number("/gc/cycles/total:gc-cycles") < 20 {
                reads += 1;
                all.read();
                assert_agreement(&all);
                for ((metric, now), before) in metrics::all().zip(&all.samples).zip(&before) {
                    let (now, before) = (&now.value, &before.value);
                    assert!(
                        !metric.cumulative || amount(now) >= amount(before),
                        "{}",
                        metric.name
                    );
                }
                before.clone_from(&all.samples);
                live = live.max(all.number("/gc/heap/live:bytes"));
            }
            assert!(live > 0, "case 40");
        });
    });
}

/// Cases 30, 31 and 43: an arena's pauses occupy one processor.
#[test]
fn pauses_are_processor_time() {
    tested("pauses_are_processor_time", || {
        let mut arena = trees();
        for _ in 0..300 {
            work(&mut arena);
        }
        // No cycle is open whose pauses are not counted yet.
        arena.finish_cycle();
        let cpu = cpu_stats();
        assert_eq!(cpu.gc_pause, gc_stats().pause_total);
        assert_eq!(cpu.gc_total, cpu.gc_pause);
        let all = cpu.gc_total + cpu.scavenge_total + cpu.user + cpu.idle;
        assert_eq!(all, cpu.total);
        // Pauses are elapsed times: the thread may have used less CPU time.
        assert!(cpu.gc_total > Duration::ZERO && cpu.total > cpu.gc_total);
        let stats = arena.collector().stats();
        assert_eq!(stats.pause_total, gc_stats().pause_total);
        let fraction = mem_stats().gc_cpu_fraction;
        assert!(0.0 < fraction && fraction < 1.0, "{fraction}");
    });
}
