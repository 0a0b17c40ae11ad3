//! The numbers on the page equal those that the program reads.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::metrics::{self, Kind, Sample, Value};
use plimsoll::stats::Histogram;
use plimsoll::{MemStats, mem_stats};

use crate::prometheus::page;
use crate::prometheus::{BOTH, answer, read};
use plimsoll_testkit::child;
use plimsoll_testkit::exposition::{Format, Page};

/// Returns a page and the statistics of the same moment.
fn quiet_page(format: Format) -> (Page, MemStats) {
    loop {
        let before = mem_stats();
        // The answer is in Plimsoll's own memory, so it does not change these statistics.
        let response = answer(format);
        let after = mem_stats();
        if go_memory(&before) == go_memory(&after) {
            return (read(response, format), after);
        }
    }
}

/// Returns the names after `go_memstats_`, each with its field of [`MemStats`].
fn go_memory(stats: &MemStats) -> [(&'static str, u64); 19] {
    [
        ("alloc_bytes", stats.alloc),
        ("alloc_bytes_total", stats.total_alloc),
        ("buck_hash_sys_bytes", stats.buck_hash_sys),
        ("frees_total", stats.frees),
        ("gc_sys_bytes", stats.gc_sys),
        ("heap_alloc_bytes", stats.heap_alloc),
        ("heap_idle_bytes", stats.heap_idle),
        ("heap_inuse_bytes", stats.heap_inuse),
        ("heap_objects", stats.heap_objects),
        ("heap_released_bytes", stats.heap_released),
        ("heap_sys_bytes", stats.heap_sys),
        ("mallocs_total", stats.mallocs),
        ("mcache_inuse_bytes", stats.mcache_inuse),
        ("mcache_sys_bytes", stats.mcache_sys),
        ("mspan_inuse_bytes", stats.mspan_inuse),
        ("mspan_sys_bytes", stats.mspan_sys),
        ("next_gc_bytes", stats.next_gc),
        ("stack_inuse_bytes", stats.stack_inuse),
        ("stack_sys_bytes", stats.stack_sys),
    ]
}

/// All other metrics of Go's client and of every client.
const OTHERS: [&str; 15] = [
    "go_gc_duration_seconds",
    "go_gc_gogc_percent",
    "go_gc_gomemlimit_bytes",
    "go_goroutines",
    "go_info",
    "go_memstats_last_gc_time_seconds",
    "go_memstats_other_sys_bytes",
    "go_memstats_sys_bytes",
    "go_sched_gomaxprocs_threads",
    "go_threads",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
];

#[test]
fn names_of_gos_client_are_there_if_they_are_wanted() {
    let test = || {
        let _plimsoll = plimsoll::start();
        let kept = vec![black_box([7u8; 1000]); 3];
        for (format, ..) in BOTH {
            let (page, stats) = quiet_page(format);
            for (name, value) in go_memory(&stats) {
                let name = format!("go_memstats_{name}");
                assert_eq!(page.value(&name, &[]), value as f64, "{name}");
            }
            for name in OTHERS {
                assert!(page.family(name).is_some(), "{name}");
            }
            assert!(page.value("process_cpu_seconds_total", &[]) > 0.0);
            assert!(page.value("go_threads", &[]) >= 1.0);
            assert!(page.value("go_goroutines", &[]) >= 1.0);
            let processors = std::thread::available_parallelism().unwrap().get();
            assert_eq!(
                page.value("go_sched_gomaxprocs_threads", &[]),
                processors as f64
            );
            let version = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));
            assert_eq!(page.value("go_info", &[("version", version)]), 1.0);
            for name in ["go_gc_duration_seconds_sum", "go_gc_duration_seconds_count"] {
                assert_eq!(page.value(name, &[]), 0.0, "no collector is registered");
            }
        }
        drop(kept);
    };
    child::run(
        "numbers::names_of_gos_client_are_there_if_they_are_wanted",
        "go_names=on",
        test,
    );
}

#[test]
fn names_of_gos_client_are_not_there_if_they_are_not_wanted() {
    let test = || {
        let _plimsoll = plimsoll::config().go_names(true).start();
        for (format, ..) in BOTH {
            for sample in page(format).samples() {
                assert!(sample.name.starts_with("plimsoll_"), "{sample:?}");
            }
        }
    };
    child::run(
        "numbers::names_of_gos_client_are_not_there_if_they_are_not_wanted",
        "go_names=off",
        test,
    );
}

/// Returns the name of a metric on the page, by the rule in the documentation of the pages.
fn name_on_page(name: &str, counter: bool) -> String {
    // By the rule, this name would clash with that of a histogram.
    let name = match name {
        "/plimsoll/gc/pauses:seconds" => "/gc/completed/pauses:seconds",
        other => other,
    };
    let (path, unit) = name[1..].split_once(':').expect("a unit");
    let mut path = path
        .trim_start_matches("plimsoll/")
        .replace(['/', '-'], "_");
    if counter {
        path = path.trim_end_matches("_total").to_owned();
    }
    let unit = unit.replace('-', "_");
    let mut name = format!("plimsoll_{path}");
    if !name.ends_with(&format!("_{unit}")) {
        name = format!("{name}_{unit}");
    }
    if counter { name + "_total" } else { name }
}

fn read_all() -> Vec<Sample> {
    let mut samples: Vec<_> = metrics::all()
        .map(|description| Sample::new(description.name))
        .collect();
    metrics::read(&mut samples);
    samples
}

/// Every metric is on the page with the value that the program reads. A metric that never falls
/// lies between the values before and after. Another has the same value, if those two are equal.
#[test]
fn every_metric_has_the_value_that_the_program_reads() {
    let test = || {
        let _plimsoll = plimsoll::start();
        let mut compared = 0;
        for (format, ..) in BOTH {
            let (before, page, after) = (read_all(), page(format), read_all());
            let samples = before.iter().zip(&after).zip(metrics::all());
            for ((before, after), description) in samples {
                let metric = description.name;
                let counter = description.cumulative && description.kind != Kind::Float64Histogram;
                let name = name_on_page(metric, counter);
                let (low, high) = match (&before.value, &after.value) {
                    (Value::Uint64(low), Value::Uint64(high)) => (*low as f64, *high as f64),
                    (Value::Float64(low), Value::Float64(high)) => (*low, *high),
                    (Value::Float64Histogram(low), Value::Float64Histogram(high)) => {
                        compare_histogram(&page, &name, low, high);
                        continue;
                    }
                    other => panic!("{metric}: {other:?}"),
                };
                let value = page.value(&name, &[]);
                if counter {
                    assert!(
                        (low..=high).contains(&value),
                        "{name}: {low} {value} {high}"
                    );
                } else if low == high && !is_of_the_moment(metric) {
                    assert_eq!(value, low, "{name}");
                }
                compared += 1;
            }
            let own = page
                .families
                .iter()
                .filter(|family| family.name.starts_with("plimsoll_"));
            assert_eq!(own.count(), metrics::all().len(), "and nothing else");
        }
        assert!(compared > 50);
    };
    child::run(
        "numbers::every_metric_has_the_value_that_the_program_reads",
        "go_names=on,task_times=on,block_rate=1us",
        test,
    );
}

/// Reports whether a metric may change while the page is written, and change back: Plimsoll's own
/// use, and running threads.
fn is_of_the_moment(metric: &str) -> bool {
    metric.starts_with("/memory/classes/")
        || metric.starts_with("/plimsoll/")
        || metric.starts_with("/sched/goroutines/")
}

fn compare_histogram(page: &Page, name: &str, low: &Histogram, high: &Histogram) {
    let family = page.family(name).unwrap_or_else(|| panic!("no {name}"));
    let parts = family
        .samples
        .iter()
        .filter(|part| part.labels.contains_key("le"));
    let mut count = 0;
    for part in parts {
        let last: f64 = part.labels["le"].replace("+Inf", "inf").parse().unwrap();
        // Counts up to the bucket's boundary. For times, the last value is a nanosecond below it.
        let up_to = |histogram: &Histogram| -> u64 {
            let ends = histogram.buckets[1..].iter();
            let within = ends.zip(&histogram.counts);
            let step = if name.ends_with("_seconds") {
                1e-9
            } else {
                1.0
            };
            let within = within.filter(|(end, _)| **end <= last + step * 1.5);
            within.map(|(_, count)| count).sum()
        };
        let (low, high) = (up_to(low) as f64, up_to(high) as f64);
        assert!((low..=high).contains(&part.value), "{part:?}: {low} {high}");
        count += 1;
    }
    assert!((2..=20).contains(&count), "{name}: {count} series");
}

/// Returns the values that never fall, with their labels.
fn counts(page: &Page) -> Vec<(String, f64)> {
    let families = page.families.iter();
    let counting = families.filter(|family| {
        matches!(
            &*family.kind,
            "counter" | "histogram" | "summary" | "unknown"
        )
    });
    let samples = counting.flat_map(|family| &family.samples);
    samples
        .filter(|sample| !sample.labels.contains_key("quantile"))
        .map(|sample| (format!("{}{:?}", sample.name, sample.labels), sample.value))
        .collect()
}

#[test]
fn no_count_falls_under_concurrent_work() {
    let test = || {
        let _plimsoll = plimsoll::start();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3usize {
                let stop = &stop;
                scope.spawn(move || {
                    let mut kept: Vec<Vec<u8>> = Vec::new();
                    let mut turn = seed;
                    while !stop.load(Ordering::Relaxed) {
                        turn = turn.wrapping_mul(25_214_903_917).wrapping_add(11);
                        kept.push(black_box(vec![1; turn % 50_000]));
                        if kept.len() > 100 {
                            kept.swap_remove(turn / 7 % 100);
                        }
                        if turn % 64 == 0 {
                            std::thread::spawn(|| {}).join().expect("it does nothing");
                        }
                    }
                });
            }
            let ended = std::panic::catch_unwind(|| {
                let mut before = counts(&page(Format::Text));
                for turn in 0..200 {
                    let now = counts(&page(BOTH[turn % 2].0));
                    assert_eq!(now.len(), before.len());
                    for ((name, before), (same, now)) in before.iter().zip(&now) {
                        assert_eq!(name, same);
                        assert!(before <= now, "{name} fell from {before} to {now}");
                    }
                    before = now;
                }
                assert!(before.iter().any(|(_, count)| *count > 1000.0));
            });
            stop.store(true, Ordering::Relaxed);
            assert!(ended.is_ok());
        });
    };
    child::run(
        "numbers::no_count_falls_under_concurrent_work",
        "go_names=on,block_rate=1us,task_times=on",
        test,
    );
}
