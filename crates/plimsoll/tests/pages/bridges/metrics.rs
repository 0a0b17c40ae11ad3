//! The bridge to the crate `metrics`, with that crate's recorder for tests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use plimsoll::bridge::metrics::{describe, record};

use crate::bridges::{
    BYTES, CYCLES, METADATA, NAME, OBJECTS, SIZES, between, collector, no_count_falls,
};

/// Returns the values of counters and gauges, by name and labels. Resets the recorder's counters.
fn values(recorder: &DebuggingRecorder) -> BTreeMap<String, (MetricKind, f64)> {
    let snapshot = recorder.snapshotter().snapshot().into_vec();
    let rows = snapshot.into_iter().map(|(key, _, _, value)| {
        let value = match value {
            DebugValue::Counter(value) => value as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => panic!("{key:?}: {values:?}"),
        };
        let mut name = key.key().name().to_owned();
        for label in key.key().labels() {
            name.push_str(&format!("{{{}={}}}", label.key(), label.value()));
        }
        (name, (key.kind(), value))
    });
    rows.collect()
}

#[test]
fn the_recorder_receives_everything() {
    let recorder = DebuggingRecorder::new();
    with_local_recorder(&recorder, || {
        between(record, |(), before, after| {
            let values = values(&recorder);
            let (kind, bytes) = values[&format!("{BYTES}_total")];
            assert_eq!(kind, MetricKind::Counter);
            assert!((before[0]..=after[0]).contains(&(bytes as u64)));
            let (_, objects) = values[&format!("{OBJECTS}_total")];
            assert!((before[1]..=after[1]).contains(&(objects as u64)));
            let (kind, all) = values[&format!("{SIZES}_bucket{{le=+Inf}}")];
            assert_eq!((kind, all), (MetricKind::Counter, objects));
            assert!(values[&format!("{SIZES}_bucket{{le=64.0}}")].1 <= all);
            let (kind, seconds) = values["plimsoll_cpu_classes_cpu_seconds_total"];
            assert_eq!(kind, MetricKind::Gauge, "a count of seconds");
            assert!(seconds > 0.0);
        });
    });
}

#[test]
fn the_recorder_receives_each_collector() {
    let recorder = DebuggingRecorder::new();
    let _collector = collector();
    with_local_recorder(&recorder, record);
    let values = values(&recorder);
    let (kind, cycles) = values[&format!("{CYCLES}_total{{collector={NAME}}}")];
    assert!(kind == MetricKind::Counter && cycles >= 3.0);
    let metadata = values[&format!("{METADATA}{{collector={NAME}}}")];
    assert_eq!(metadata, (MetricKind::Gauge, 0.0));
}

#[test]
fn the_recorder_receives_each_description() {
    let recorder = DebuggingRecorder::new();
    // `describe` omits the metrics of collectors while none is registered, and other tests register one.
    let _collector = collector();
    with_local_recorder(&recorder, || {
        describe();
        record();
    });
    let described = recorder.snapshotter().snapshot().into_vec();
    let mut seen = HashSet::new();
    for (key, unit, help, _) in described {
        let name = key.key().name().to_owned();
        assert!(help.is_some_and(|help| !help.is_empty()), "{name}");
        if name.ends_with("_bucket") || name.ends_with("_count") {
            assert_eq!(unit, Some(Unit::Count), "{name}");
        } else if name.ends_with("_bytes_per_second") {
            assert_eq!(unit, None, "{name}");
        } else if name.contains("_bytes") {
            assert_eq!(unit, Some(Unit::Bytes), "{name}");
        } else if name.contains("_seconds") {
            assert_eq!(unit, Some(Unit::Seconds), "{name}");
        }
        seen.insert(name);
    }
    assert!(seen.len() >= plimsoll::metrics::all().len());
}

#[test]
fn exports_without_a_recorder_do_nothing() {
    describe();
    record();
}

#[test]
fn recorded_counters_do_not_fall() {
    let recorder = DebuggingRecorder::new();
    no_count_falls(|| {
        with_local_recorder(&recorder, record);
        let all = values(&recorder);
        let counts = all.into_iter().filter(|(name, (kind, _))| {
            *kind == MetricKind::Counter || name.ends_with("_total") || name.ends_with("_sum")
        });
        counts
            .map(|(name, (_, value))| (name.trim_end_matches("_total").to_owned(), value))
            .collect()
    });
}

/// A recorder that fails if a gauge of a cumulative value falls.
#[derive(Default)]
struct Rising(Mutex<HashMap<Key, Arc<Mutex<f64>>>>);

struct RisingGauge(Arc<Mutex<f64>>);

impl GaugeFn for RisingGauge {
    fn increment(&self, _: f64) {
        panic!("it is set");
    }

    fn decrement(&self, _: f64) {
        panic!("it is set");
    }

    fn set(&self, value: f64) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap(), value);
        assert!(before <= value, "{value} after {before}");
    }
}

impl Recorder for Rising {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let name = key.name();
        if !(name.ends_with("_total") || name.ends_with("_sum")) {
            return Gauge::noop();
        }
        let mut gauges = self.0.lock().unwrap();
        let gauge = gauges.entry(key.clone()).or_default();
        Gauge::from_arc(Arc::new(RisingGauge(Arc::clone(gauge))))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("{key:?}");
    }
}

/// Any thread may record. A thread never records an older reading after another thread has recorded
/// a newer one.
#[test]
fn counts_exported_by_several_threads_do_not_fall() {
    let recorder = Rising::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    with_local_recorder(&recorder, record);
                }
            });
        }
    });
    let gauges = recorder.0.lock().unwrap();
    assert!(!gauges.is_empty());
    assert!(gauges.values().any(|gauge| *gauge.lock().unwrap() > 0.0));
}
