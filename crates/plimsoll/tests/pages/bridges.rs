//! The metrics exported to other libraries, and read back from them.
//!
//! Each part requires the feature of its library.
#![cfg(any(
    feature = "bridge-metrics",
    feature = "bridge-opentelemetry",
    feature = "bridge-prometheus-client"
))]

#[cfg(feature = "bridge-prometheus-client")]
#[cfg(feature = "bridge-metrics")]
#[path = "bridges/metrics.rs"]
mod metrics;
#[cfg(feature = "bridge-opentelemetry")]
#[path = "bridges/opentelemetry.rs"]
mod opentelemetry;
#[cfg(feature = "bridge-prometheus-client")]
#[path = "bridges/prometheus_client.rs"]
mod prometheus_client;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::gc::{Cause, Collector};

/// A name that breaks a format without escapes.
const NAME: &str = "a\"} 1\nb{c=\"\\";

/// Registers a collector with this name, which has completed at least three cycles.
fn collector() -> Collector {
    let collector = Collector::register(NAME).expect("the name exists");
    for live in 1..=3 {
        let cycle = collector.begin(Cause::Automatic);
        cycle.mark_termination().finish(live, 2 * live);
        drop(cycle.sweep());
    }
    collector
}

/// The metrics of each collector: a counter and a gauge.
const CYCLES: &str = "plimsoll_gc_collector_cycles_gc_cycles";
const METADATA: &str = "plimsoll_gc_collector_metadata_bytes";

const BYTES: &str = "plimsoll_gc_heap_allocs_bytes";
const OBJECTS: &str = "plimsoll_gc_heap_allocs_objects";
const SIZES: &str = "plimsoll_gc_heap_allocs_by_size_bytes";

/// Calls `read` many times while other threads allocate. Fails if a number falls, or if two numbers
/// of one reading disagree.
fn no_count_falls(mut read: impl FnMut() -> BTreeMap<String, f64>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut turn = seed;
                while !stop.load(Ordering::Relaxed) {
                    turn = turn.wrapping_mul(25_214_903_917).wrapping_add(11);
                    drop(black_box(vec![1u8; turn % 50_000]));
                }
            });
        }
        let _stop = Stop(&stop);
        let mut before = read();
        for _ in 0..50 {
            let now = read();
            for (name, before) in &before {
                let now = now[name];
                assert!(*before <= now, "{name} fell from {before} to {now}");
            }
            let sum = format!("{SIZES}_sum");
            assert_eq!(now[&sum], now[BYTES], "of one moment");
            assert_eq!(now[&format!("{SIZES}_count")], now[OBJECTS]);
            before = now;
        }
        assert!(before[OBJECTS] > 0.0);
    });
}

/// Ends the threads, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `read` between two readings of the bytes and blocks allocated so far.
fn between<T>(read: impl FnOnce() -> T, check: impl FnOnce(T, [u64; 2], [u64; 2])) {
    let before = plimsoll::heap_stats();
    let value = read();
    let after = plimsoll::heap_stats();
    check(
        value,
        [before.malloc_bytes, before.mallocs],
        [after.malloc_bytes, after.mallocs],
    );
}
