//! Relations that hold in every reading of statistics and metrics, whatever the program does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::MemStats;
use plimsoll::metrics::{self, Histogram, Sample, Value};

/// A guard that sets a flag when it is dropped, also in a panic, so that other threads of a scope
/// end.
pub struct Until<'a>(pub &'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns whether `work` can run without an allocation. The test's own threads may allocate once
/// or twice meanwhile, so the attempt is repeated with increasing delays.
pub fn allocates_nothing(mut work: impl FnMut()) -> bool {
    (0..40).any(|round| {
        std::thread::sleep(std::time::Duration::from_millis(round));
        let before = plimsoll::heap_stats().mallocs;
        work();
        plimsoll::heap_stats().mallocs == before
    })
}

/// Asserts the relations of statistics in any program: cases 2 to 6 of Go's tests.
pub fn assert_relations(stats: &MemStats) {
    let parts = stats.heap_sys
        + stats.stack_sys
        + stats.mspan_sys
        + stats.mcache_sys
        + stats.buck_hash_sys
        + stats.gc_sys
        + stats.other_sys;
    assert_eq!(stats.sys, parts);
    assert_eq!(stats.heap_idle + stats.heap_inuse, stats.heap_sys);
    assert!(stats.heap_alloc <= stats.heap_inuse && stats.heap_released <= stats.heap_idle);
    assert!(stats.mspan_inuse <= stats.mspan_sys);
    let newest = (stats.num_gc as usize + 255) % 256;
    assert_eq!(stats.last_gc, stats.pause_end[newest]);
    let of_ring: u64 = stats.pause_ns.iter().sum();
    if stats.num_gc < 256 {
        assert_eq!(stats.pause_total_ns, of_ring);
        let unused = stats.num_gc as usize..;
        assert!(stats.pause_ns[unused.clone()].iter().all(|&ns| ns == 0));
        assert!(stats.pause_end[unused].iter().all(|&end| end == 0));
    } else {
        assert!(stats.pause_total_ns >= of_ring);
    }
    assert!(stats.num_forced_gc <= stats.num_gc);
    assert!((0.0..=1.0).contains(&stats.gc_cpu_fraction));
}

/// All metrics, read at once.
pub struct Everything {
    pub samples: Vec<Sample>,
    places: HashMap<&'static str, usize>,
}

impl Default for Everything {
    fn default() -> Self {
        let samples = metrics::all()
            .map(|metric| Sample::new(metric.name))
            .collect();
        let names = metrics::all().enumerate();
        let places = names.map(|(at, metric)| (metric.name, at)).collect();
        Self { samples, places }
    }
}

impl Everything {
    pub fn read(&mut self) {
        metrics::read(&mut self.samples);
    }

    pub fn now() -> Self {
        let mut all = Self::default();
        all.read();
        all
    }

    pub fn value(&self, name: &str) -> &Value {
        &self.samples[*self.places.get(name).unwrap_or_else(|| panic!("no {name}"))].value
    }

    pub fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Uint64(number) => *number,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn seconds(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Float64(seconds) => *seconds,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn histogram(&self, name: &str) -> &Histogram {
        match self.value(name) {
            Value::Float64Histogram(histogram) => histogram,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn all_under(&self, prefix: &str) -> impl Iterator<Item = (&'static str, u64)> {
        let names = self
            .places
            .keys()
            .filter(move |name| name.starts_with(prefix));
        names.map(|name| (*name, self.number(name)))
    }
}

/// Returns a cumulative value as a number; for a histogram, its total count.
pub fn amount(value: &Value) -> f64 {
    match value {
        Value::Uint64(number) => *number as f64,
        Value::Float64(number) => *number,
        Value::Float64Histogram(histogram) => histogram.total() as f64,
        other => panic!("{other:?}"),
    }
}

/// Asserts that metrics agree: cases 41, 42 and 51 of Go's tests.
pub fn assert_agreement(all: &Everything) {
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

    let pauses = all.histogram("/gc/pauses:seconds");
    assert_eq!(pauses, all.histogram("/sched/pauses/total/gc:seconds"));

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
