//! The series of each collector.

use plimsoll::gc::{Cause, Collector};

use crate::prometheus::BOTH;
use crate::prometheus::page;
use plimsoll_testkit::child;
use plimsoll_testkit::exposition::Page;

/// Unusual names: with the characters that end labels, lines and escapes, and with invalid text.
const NAMES: [&str; 7] = [
    "plain",
    "\"} 1\nup 0",
    "\\",
    "\\n",
    "a\r\tb\u{1}\u{7f}\0",
    "é \u{2028}\u{1F600}",
    "le=\"+Inf\",quantile",
];

fn cycle(collector: &Collector, cause: Cause, live: u64) {
    let cycle = collector.begin(cause);
    let termination = cycle.mark_termination();
    termination.finish(live, 2 * live);
    drop(cycle.sweep());
    cycle.end();
}

fn value(page: &Page, name: &str, collector: &str) -> f64 {
    let name = format!("plimsoll_gc_collector_{name}");
    page.value(&name, &[("collector", collector)])
}

#[test]
fn collectors_have_series_of_their_own_whatever_they_are_called() {
    let test = || {
        let _plimsoll = plimsoll::start();
        for (format, ..) in BOTH {
            let page = page(format);
            let mut samples = page.samples();
            assert!(samples.all(|sample| !sample.labels.contains_key("collector")));
        }
        let collectors = NAMES.map(|name| Collector::register(name).expect(name));
        let long = "x".repeat(128);
        let long = Collector::register(&long).expect("a slot is free");
        for (at, collector) in collectors.iter().enumerate() {
            collector.set_metadata_bytes(7);
            for turn in 0..=at {
                cycle(
                    collector,
                    [Cause::Automatic, Cause::Forced][turn % 2],
                    1000 + turn as u64,
                );
            }
        }
        for (format, ..) in BOTH {
            let page = page(format);
            for (at, name) in NAMES.iter().enumerate() {
                let cycles = at as f64 + 1.0;
                assert_eq!(
                    value(&page, "cycles_gc_cycles_total", name),
                    cycles,
                    "{name:?}"
                );
                let forced = (at as f64 / 2.0).ceil();
                assert_eq!(value(&page, "forced_gc_cycles_total", name), forced);
                assert_eq!(value(&page, "pauses_total", name), cycles);
                assert!(value(&page, "pause_seconds_total", name) > 0.0);
                assert_eq!(value(&page, "live_bytes", name), 1000.0 + at as f64);
                assert_eq!(value(&page, "goal_bytes", name), 2000.0 + 2.0 * at as f64);
                assert_eq!(value(&page, "metadata_bytes", name), 7.0);
            }
            assert_eq!(value(&page, "live_bytes", long.name()), 0.0);
            let sums = plimsoll::gc_stats();
            let count = page.value("go_gc_duration_seconds_count", &[]);
            assert_eq!(count, sums.num_gc as f64);
            let slowest = page.value(
                "go_gc_duration_seconds",
                &[(
                    "quantile",
                    match format {
                        crate::prometheus::Format::Text => "1",
                        crate::prometheus::Format::OpenMetrics => "1.0",
                    },
                )],
            );
            let longest = plimsoll::mem_stats().pause_ns.into_iter().max();
            assert_eq!(slowest, longest.unwrap() as f64 / 1e9);
            let next = plimsoll::mem_stats().next_gc;
            assert_eq!(page.value("go_memstats_next_gc_bytes", &[]), next as f64);
        }
        // The counts of dropped collectors remain.
        drop(collectors);
        let page = page(BOTH[0].0);
        assert_eq!(value(&page, "cycles_gc_cycles_total", "plain"), 1.0);
    };
    child::run(
        "collectors::collectors_have_series_of_their_own_whatever_they_are_called",
        "go_names=on",
        test,
    );
}
