//! Names, kinds and documentation of the metrics.

use std::fmt::Write;
use std::path::Path;

use plimsoll::metrics::{self, Kind, Sample, Value};

use super::Everything;

/// Go's expression: `^(?P<name>/[^:]+):(?P<unit>[^:*/]+(?:[*/][^:*/]+)*)$`.
fn is_well_formed(name: &str) -> bool {
    let Some((path, unit)) = name.split_once(':') else {
        return false;
    };
    let parts = || unit.split(['*', '/']);
    path.len() > 1
        && path.starts_with('/')
        && !unit.contains(':')
        && parts().all(|part| !part.is_empty())
}

/// Case 32.
#[test]
fn names_are_well_formed_and_ascending_and_match_their_kind() {
    let all = Everything::now();
    let names: Vec<_> = metrics::all().map(|metric| metric.name).collect();
    assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
    for (metric, sample) in metrics::all().zip(&all.samples) {
        assert!(is_well_formed(metric.name), "{}", metric.name);
        assert_eq!(sample.name(), metric.name);
        assert_eq!(sample.value.kind(), Some(metric.kind), "{}", metric.name);
        assert!(metric.description.ends_with('.'), "{}", metric.name);
    }
    for wrong in ["/a", "a:b", "/:b", "/a:", "/a:b:c", "/a:b//c", "/a:*b"] {
        assert!(!is_well_formed(wrong), "{wrong}");
    }
}

/// Go's names that have a meaning here.
#[test]
fn gos_names_are_there() {
    for name in include_str!("gos_names.txt").lines() {
        let sample = &mut [Sample::new(name)];
        metrics::read(sample);
        assert_ne!(sample[0].value, Value::Bad, "{name}");
    }
}

/// Cases 34 and 35.
#[test]
fn an_empty_request_succeeds_and_unknown_names_are_bad() {
    metrics::read(&mut []);
    let mut unknown = [
        Sample::new("/no/such:thing"),
        Sample::new(""),
        Sample::new(String::from("/gc/heap/allocs:Bytes")),
        Sample::new("/gc/heap/allocs:bytes"),
    ];
    unknown[0].value = Value::Uint64(7);
    metrics::read(&mut unknown);
    assert!(unknown[..3].iter().all(|sample| sample.value == Value::Bad));
    assert!(matches!(unknown[3].value, Value::Uint64(1..)));
}

/// A sample may have any value before it is read.
#[test]
fn old_contents_of_a_sample_are_replaced() {
    for before in [Value::Bad, Value::Float64(f64::NAN), Value::Uint64(1)] {
        for metric in metrics::all() {
            let mut sample = [Sample::new(metric.name)];
            sample[0].value = before.clone();
            metrics::read(&mut sample);
            assert_eq!(sample[0].value.kind(), Some(metric.kind));
        }
    }
}

/// Case 36.
#[test]
fn values_are_finite_and_boundaries_stay() {
    let mut all = Everything::now();
    let buckets = |all: &Everything| -> Vec<&'static [f64]> {
        let histograms = all.samples.iter().filter_map(|sample| match &sample.value {
            Value::Float64Histogram(histogram) => Some(histogram.buckets),
            _ => None,
        });
        histograms.collect()
    };
    let before = buckets(&all);
    all.read();
    assert_eq!(before, buckets(&all));
    for sample in &all.samples {
        match &sample.value {
            Value::Float64(value) => assert!(value.is_finite() && *value >= 0.0),
            Value::Float64Histogram(histogram) => {
                let boundaries = histogram.buckets;
                assert_eq!(
                    boundaries.len(),
                    histogram.counts.len() + 1,
                    "{}",
                    sample.name()
                );
                assert!(boundaries.is_sorted_by(|one, other| one < other));
            }
            _ => {}
        }
    }
    let concurrent: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let mut all = Everything::default();
                (0..200).for_each(|_| all.read());
            })
        })
        .collect();
    concurrent
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Case 33: the reference page equals the table. `PLIMSOLL_WRITE_DOCS=1` writes the page.
#[test]
fn the_documentation_is_that_of_the_table() {
    let mut text = String::from(
        "# Metrics\n\nEvery metric of `plimsoll::metrics`; [how they are read](metrics-pages.md), and \
         [dashboard and alerts](../guides/fleet.md).\nThis page is written from the table in `crates/plimsoll-profiles/src/metrics/table/`.\n\n| name | kind | |\n|---|---|---|\n",
    );
    for metric in metrics::all() {
        let kind = match metric.kind {
            Kind::Uint64 => "number",
            Kind::Float64 => "float",
            Kind::Float64Histogram => "histogram",
            other => panic!("{other:?}"),
        };
        let cumulative = if metric.cumulative {
            ", cumulative"
        } else {
            ""
        };
        let (name, description) = (metric.name, metric.description);
        writeln!(text, "| `{name}` | {kind}{cumulative} | {description} |").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/reference/metrics.md differs from the table: write it with PLIMSOLL_WRITE_DOCS=1"
    );
}
