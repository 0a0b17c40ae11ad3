//! Metrics read while threads allocate, collect, start and end.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::gc::{Cause, Collector};
use plimsoll::metrics;

use super::relations::{Everything, Until, amount, assert_agreement};
use super::{child, collect};

/// Returns how long the churn lasts: 3 seconds, or `PLIMSOLL_SOAK_SECONDS`.
fn duration() -> Duration {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Calls `look` repeatedly while the churn runs.
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
        let _ended = Until(&stop);
        let until = Instant::now() + duration();
        let mut looks = 0;
        while Instant::now() < until || looks < 100 {
            look();
            looks += 1;
        }
    });
}

/// Cases 42, 44 and 51, in each of several thousand readings.
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
