//! Plimsoll's metrics in the recorder of the crate `metrics`.
//!
//! A recorder receives values and does not pull them: the program calls [`record`] periodically,
//! such as every ten seconds, or whenever its exporter is scraped.
//!
//! Some values have no direct counterpart in the crate:
//! * Its counters are whole numbers. A count of seconds is a gauge, which never falls.
//! * Its histograms receive one value at a time. Those of Plimsoll become counters `..._bucket`,
//!   with a label `le` for the largest value that each counts, and `..._count`, as in Prometheus.
//!   Their `..._sum` is a gauge, or a counter if it is exact.

use std::sync::PoisonError;

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};

use plimsoll_sys::primitives::Mutex;

use super::gather;
use plimsoll_profiles::export::prometheus::exposition::{Number, put_number};
use plimsoll_profiles::export::prometheus::series::{Kind, Metric, Point, Reading};

/// Serializes recordings: otherwise a gauge could fall back to an earlier value.
static RECORDING: Mutex<()> = Mutex::new(());

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Describes each metric to the recorder of this thread, or else to the program's recorder. Call it
/// once, after the recorder is installed. Without a recorder, it does nothing.
pub fn describe() {
    let all = gather();
    with_recorder(|recorder| {
        for metric in &all {
            let unit = match &*metric.name.unit {
                "seconds" => Some(Unit::Seconds),
                "bytes" => Some(Unit::Bytes),
                "percent" => Some(Unit::Percent),
                // The crate has no unit of bytes by time.
                "" | "bytes_per_second" => None,
                _ => Some(Unit::Count),
            };
            let Some(point) = metric.points.first() else {
                continue;
            };
            each(metric, point, |name, labels, value| {
                // All buckets have the same name: one description is enough.
                if labels
                    .iter()
                    .any(|label| label.key() == "le" && label.value() != "+Inf")
                {
                    return;
                }
                let is_count = name.ends_with("_bucket") || name.ends_with("_count");
                let unit = if is_count { Some(Unit::Count) } else { unit };
                let (name, help) = (KeyName::from(name), metric.help.clone().into());
                match value {
                    MetricValue::Counter(_) => recorder.describe_counter(name, unit, help),
                    MetricValue::Gauge(_) => recorder.describe_gauge(name, unit, help),
                }
            });
        }
    });
}

/// Records all current values with the recorder of this thread, or else with the program's
/// recorder. Without a recorder, it does nothing.
///
/// ```
/// // With a recorder that is installed:
/// plimsoll::bridge::metrics::describe();
/// plimsoll::bridge::metrics::record();
/// ```
pub fn record() {
    let _one = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let all = gather();
    with_recorder(|recorder| {
        for metric in &all {
            for point in &metric.points {
                each(metric, point, |name, labels, value| {
                    pass(recorder, Key::from((name, labels)), value);
                });
            }
        }
    });
}

enum MetricValue {
    Counter(u64),
    Gauge(f64),
}

fn pass(recorder: &dyn Recorder, key: Key, value: MetricValue) {
    match value {
        MetricValue::Counter(value) => recorder.register_counter(&key, &METADATA).absolute(value),
        MetricValue::Gauge(value) => recorder.register_gauge(&key, &METADATA).set(value),
    }
}

/// Passes each part of a value to `pass`, with its name and labels.
fn each(metric: &Metric, point: &Point, mut pass: impl FnMut(String, Vec<Label>, MetricValue)) {
    let family = &metric.name.family;
    let labels = point.labels.iter();
    let labels: Vec<Label> = labels
        .map(|(name, value)| Label::new(*name, value.clone().into_owned()))
        .collect();
    match &point.value {
        Reading::Number(number)
            if matches!(metric.kind, Kind::WholeCounter | Kind::FloatCounter) =>
        {
            pass(format!("{family}_total"), labels, counted(*number));
        }
        Reading::Number(number) => {
            pass(family.clone(), labels, MetricValue::Gauge((*number).into()))
        }
        Reading::Buckets { buckets, sum } => {
            for &(up_to, count) in &buckets.up_to {
                let mut last = String::new();
                put_number(&mut last, up_to.into());
                let mut labels = labels.clone();
                labels.push(Label::new("le", last));
                pass(
                    format!("{family}_bucket"),
                    labels,
                    MetricValue::Counter(count),
                );
            }
            pass(format!("{family}_sum"), labels.clone(), counted(*sum));
            let count = MetricValue::Counter(buckets.count());
            pass(format!("{family}_count"), labels, count);
        }
    }
}

fn counted(number: Number) -> MetricValue {
    match number {
        Number::Whole(count) => MetricValue::Counter(count),
        Number::Float(value) => MetricValue::Gauge(value),
    }
}
