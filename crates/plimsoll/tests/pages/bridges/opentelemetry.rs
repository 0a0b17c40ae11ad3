//! The bridge to OpenTelemetry, with the SDK's exporter for tests.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use plimsoll::bridge::opentelemetry::register;

use crate::bridges::{
    BYTES, CYCLES, METADATA, NAME, OBJECTS, SIZES, between, collector, no_count_falls,
};

/// A provider and its exporter.
struct Exported {
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

/// Values by name, each with whether it is a counter.
type Values = BTreeMap<String, (f64, bool)>;

/// Returns a reader that exports only on request, and not also each minute.
fn reader(exporter: &InMemoryMetricExporter) -> PeriodicReader<InMemoryMetricExporter> {
    let never = Duration::from_secs(1 << 30);
    let reader = PeriodicReader::builder(exporter.clone());
    reader.with_interval(never).build()
}

impl Exported {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let reader = reader(&exporter);
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        register(&provider.meter("plimsoll"));
        Self { provider, exporter }
    }

    /// Exports the values of this moment.
    fn flush(&self) {
        self.exporter.reset();
        self.provider.force_flush().expect("it is exported");
    }

    fn with<T>(&self, mut each: impl FnMut(&Metric) -> T) -> Vec<T> {
        let exported = self.exporter.get_finished_metrics().unwrap();
        let scopes = exported
            .iter()
            .flat_map(|resource| resource.scope_metrics());
        scopes
            .flat_map(|scope| scope.metrics())
            .map(&mut each)
            .collect()
    }

    fn values(&self) -> Values {
        let mut values = BTreeMap::new();
        self.with(|metric| match metric.data() {
            AggregatedMetrics::U64(data) => put(&mut values, metric.name(), data, |it| it as f64),
            AggregatedMetrics::F64(data) => put(&mut values, metric.name(), data, |it| it),
            AggregatedMetrics::I64(data) => panic!("{data:?}"),
        });
        values
    }
}

fn put<T: Copy + std::fmt::Debug>(
    values: &mut Values,
    name: &str,
    data: &MetricData<T>,
    number: fn(T) -> f64,
) {
    let mut put = |attributes: Vec<&KeyValue>, value, counter| {
        let mut name = name.to_owned();
        for attribute in attributes {
            let value: &dyn Display = &attribute.value;
            name.push_str(&format!("{{{}={value}}}", attribute.key));
        }
        let known = values.insert(name.clone(), (number(value), counter));
        assert!(known.is_none(), "{name} twice");
    };
    match data {
        MetricData::Gauge(gauge) => {
            for point in gauge.data_points() {
                put(point.attributes().collect(), point.value(), false);
            }
        }
        MetricData::Sum(sum) => {
            assert!(sum.is_monotonic(), "{name}");
            for point in sum.data_points() {
                put(point.attributes().collect(), point.value(), true);
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_metrics_are_exported_with_their_current_values() {
    let exported = Exported::new();
    for _ in 0..2 {
        drop(std::hint::black_box(vec![0u8; 100]));
        between(
            || exported.flush(),
            |(), before, after| {
                let values = exported.values();
                let (bytes, counter) = values[BYTES];
                assert!(counter && (before[0]..=after[0]).contains(&(bytes as u64)));
                let (objects, _) = values[OBJECTS];
                assert!((before[1]..=after[1]).contains(&(objects as u64)));
                let (all, counter) = values[&format!("{SIZES}_bucket{{le=+Inf}}")];
                assert_eq!((all, counter), (objects, true));
                assert_eq!(values[&format!("{SIZES}_sum")].0, bytes);
                assert!(!values["plimsoll_sched_goroutines"].1, "a gauge");
                assert!(values["plimsoll_cpu_classes_cpu_seconds"].0 > 0.0);
            },
        );
    }
    assert!(exported.values().len() >= plimsoll::metrics::all().len());
}

/// Also holds for a collector that was registered after the instruments were made.
#[test]
fn collectors_differ_by_an_attribute() {
    let exported = Exported::new();
    let _collector = collector();
    exported.flush();
    let values = exported.values();
    let (cycles, counter) = values[&format!("{CYCLES}{{collector={NAME}}}")];
    assert!(counter && cycles >= 3.0);
    assert_eq!(
        values[&format!("{METADATA}{{collector={NAME}}}")],
        (0.0, false)
    );
}

#[test]
fn each_instrument_has_a_description_and_a_unit() {
    let exported = Exported::new();
    exported.flush();
    exported.with(|metric| {
        let (name, unit) = (metric.name(), metric.unit());
        assert!(!metric.description().is_empty(), "{name}");
        let expected = if name.ends_with("_bucket") || name.ends_with("_count") {
            "1"
        } else if name.trim_end_matches("_sum").ends_with("_bytes") {
            "By"
        } else if name.trim_end_matches("_sum").ends_with("_seconds") {
            "s"
        } else {
            unit
        };
        assert_eq!(unit, expected, "{name}");
        assert!(!unit.is_empty(), "{name}");
    });
}

#[test]
fn exported_counts_do_not_fall() {
    let exported = Exported::new();
    no_count_falls(|| {
        exported.flush();
        let values = exported.values().into_iter();
        let counters = values.filter(|(_, (_, counter))| *counter);
        counters.map(|(name, (value, _))| (name, value)).collect()
    });
}

/// Two readers collect independently. Each gets values of one moment, which is never earlier than
/// the one before.
#[test]
fn two_providers_and_two_readers_do_not_disturb_one_another() {
    let exporters = [(); 2].map(|()| InMemoryMetricExporter::default());
    let readers = exporters.iter().map(reader);
    let provider = readers
        .fold(SdkMeterProvider::builder(), |builder, reader| {
            builder.with_reader(reader)
        })
        .build();
    register(&provider.meter("plimsoll"));
    let others = Exported::new();
    no_count_falls(|| {
        provider.force_flush().expect("it is exported");
        others.flush();
        let newest = others.values();
        for exporter in &exporters {
            let one = Exported {
                provider: provider.clone(),
                exporter: exporter.clone(),
            };
            let values = one.values();
            assert_eq!(values[&format!("{SIZES}_sum")].0, values[BYTES].0);
            assert!(values[BYTES].0 <= newest[BYTES].0);
            exporter.reset();
        }
        newest
            .into_iter()
            .filter(|(_, (_, counter))| *counter)
            .map(|(name, (value, _))| (name, value))
            .collect()
    });
}
