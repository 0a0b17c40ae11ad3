//! Metrics beside threads that allocate, collect, come and go.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::gc::{Cause, Collector};
use plimsoll::metrics;

use super::{Everything, amount, child, collect};

/// How long the churn goes on: longer by `PLIMSOLL_SOAK_SECONDS`.
fn duration() -> Duration {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Runs `look` again and again beside all that.
fn beside_churn(mut look: impl FnMut()) {
    let stop = AtomicBool::new(false);
    let runs = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for size in [40, 3000] {
            scope.spawn(move || {
                let mut kept = Vec::new();
                while runs() {
                    kept.push(vec![1u8; black_box(size)]);
                    if kept.len() > 100 {
                        kept.clear();
                    }
                }
            });
        }
        scope.spawn(|| {
            while runs() {
                // Large blocks: case 51.
                drop(black_box(vec![1u8; 1 << 20]));
            }
        });
        scope.spawn(|| {
            let collector = Collector::register("kept").unwrap();
            while runs() {
                collect(&collector, Cause::Automatic);
                collect(&collector, Cause::Forced);
                drop(collector.begin(Cause::Automatic));
            }
        });
        scope.spawn(|| {
            while runs() {
                let thread = std::thread::spawn(|| {
                    let collector = Collector::register("short").unwrap();
                    collect(&collector, Cause::Forced);
                    black_box(vec![0u64; 100]);
                });
                thread.join().unwrap();
            }
        });
        let until = Instant::now() + duration();
        let mut looks = 0;
        while Instant::now() < until || looks < 100 {
            look();
            looks += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Case 42, 44 and 51, in each of some thousand readings.
#[test]
fn every_reading_agrees_with_itself_and_nothing_cumulative_falls() {
    let name = "churn::every_reading_agrees_with_itself_and_nothing_cumulative_falls";
    child::run(name, "heap_rate=64k", || {
        let mut all = Everything::now();
        let mut before: Vec<_> = all.samples.clone();
        beside_churn(|| {
            all.read();
            assert_agreement(&all);
            for ((metric, now), before) in metrics::all().zip(&all.samples).zip(&before) {
                if metric.cumulative {
                    let (now, before) = (amount(&now.value), amount(&before.value));
                    assert!(now >= before, "{}: {before}, {now}", metric.name);
                }
            }
            before.clone_from(&all.samples);
        });
        assert!(all.number("/gc/cycles/total:gc-cycles") > 10);
    });
}

fn assert_agreement(all: &Everything) {
    let total = all.number("/memory/classes/total:bytes");
    let classes = all.all_under("/memory/classes/");
    let parts = classes.filter(|&(name, _)| name != "/memory/classes/total:bytes");
    let mut sum = 0;
    for (name, bytes) in parts {
        assert!(bytes < 1 << 40, "{name} is {bytes}");
        sum += bytes;
    }
    assert_eq!(sum, total);

    let number = |name: &str| all.number(&format!("/gc/heap/{name}"));
    let live = number("objects:objects");
    assert_eq!(number("allocs:objects") - number("frees:objects"), live);
    let bytes = all.number("/memory/classes/heap/objects:bytes");
    assert_eq!(number("allocs:bytes") - number("frees:bytes"), bytes);
    let allocs = all.histogram("/gc/heap/allocs-by-size:bytes");
    let frees = all.histogram("/gc/heap/frees-by-size:bytes");
    assert_eq!(allocs.buckets, frees.buckets);
    let mut pairs = allocs.counts.iter().zip(&frees.counts);
    assert!(pairs.all(|(allocs, frees)| allocs >= frees));
    assert_eq!(allocs.total(), number("allocs:objects"));
    assert_eq!(frees.total(), number("frees:objects"));

    let cycles = |name: &str| all.number(&format!("/gc/cycles/{name}:gc-cycles"));
    assert_eq!(cycles("automatic") + cycles("forced"), cycles("total"));
    let scan = |name: &str| all.number(&format!("/gc/scan/{name}:bytes"));
    assert_eq!(
        scan("globals") + scan("heap") + scan("stack"),
        scan("total")
    );

    let goroutines = |name: &str| all.number(&format!("/sched/goroutines{name}:goroutines"));
    let states = ["/not-in-go", "/runnable", "/running", "/waiting"].map(goroutines);
    assert_eq!(states.iter().sum::<u64>(), goroutines(""));
    assert!(goroutines("") >= 1);
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    assert_eq!(all.number("/sched/gomaxprocs:threads"), processors);

    let class = |name: &str| all.seconds(&format!("/cpu/classes/{name}:cpu-seconds"));
    let parts = class("gc/total") + class("scavenge/total") + class("user") + class("idle");
    assert!((parts - class("total")).abs() <= 0.001 * class("total"));
}
