//! Plimsoll's metrics in the recorder of the crate `metrics`.
//!
//! A recorder is told of values, and does not ask for them: the program calls [`record`] from time
//! to time, such as every ten seconds, or whenever its exporter is asked.
//!
//! What the crate has no way to be told is said otherwise:
//! * Its counters are whole numbers. A count of seconds is a gauge, which never falls.
//! * Its histograms are told each value by itself. Those of Plimsoll are counters `..._bucket`,
//!   with a label `le` for the largest value that each counts, and `..._count`, as Prometheus has
//!   them; and `..._sum`, a gauge, or a counter if it is exact.

use std::sync::PoisonError;

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};

use super::gather;
use crate::export::prometheus::exposition::{Number, put_number};
use crate::export::prometheus::series::{Kind, Metric, Point, Reading};
use crate::primitives::Mutex;

/// One at a time: else a gauge could go back to what it was before.
static RECORDING: Mutex<()> = Mutex::new(());

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Tells the recorder of this thread, or else that of the program, what each metric is: once, after
/// it is installed. Without a recorder, it does nothing.
pub fn describe() {
    let all = gather();
    with_recorder(|recorder| {
        for metric in &all {
            let unit = match &*metric.name.unit {
                "seconds" => Some(Unit::Seconds),
                "bytes" => Some(Unit::Bytes),
                "percent" => Some(Unit::Percent),
                "" => None,
                _ => Some(Unit::Count),
            };
            let Some(point) = metric.points.first() else {
                continue;
            };
            each(metric, point, |name, labels, value| {
                // A bucket counts what the histogram is of.
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
                    Told::Counter(_) => recorder.describe_counter(name, unit, help),
                    Told::Gauge(_) => recorder.describe_gauge(name, unit, help),
                }
            });
        }
    });
}

/// Tells the recorder of this thread, or else that of the program, all values of this moment.
/// Without a recorder, it does nothing.
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
                    tell(recorder, Key::from((name, labels)), value);
                });
            }
        }
    });
}

enum Told {
    Counter(u64),
    Gauge(f64),
}

fn tell(recorder: &dyn Recorder, key: Key, value: Told) {
    match value {
        Told::Counter(value) => recorder.register_counter(&key, &METADATA).absolute(value),
        Told::Gauge(value) => recorder.register_gauge(&key, &METADATA).set(value),
    }
}

/// Everything that the recorder is told for a value, under its name and with its labels.
fn each(metric: &Metric, point: &Point, mut tell: impl FnMut(String, Vec<Label>, Told)) {
    let family = &metric.name.family;
    let labels: Vec<Label> = point
        .label
        .map(|(name, value)| Label::new(name, value))
        .into_iter()
        .collect();
    match &point.value {
        Reading::Number(number)
            if matches!(metric.kind, Kind::WholeCounter | Kind::FloatCounter) =>
        {
            tell(format!("{family}_total"), labels, counted(*number));
        }
        Reading::Number(number) => tell(family.clone(), labels, Told::Gauge((*number).into())),
        Reading::Buckets { buckets, sum } => {
            for &(up_to, count) in &buckets.up_to {
                let mut last = String::new();
                put_number(&mut last, up_to.into());
                let labels = vec![Label::new("le", last)];
                tell(format!("{family}_bucket"), labels, Told::Counter(count));
            }
            tell(format!("{family}_sum"), Vec::new(), counted(*sum));
            let count = Told::Counter(buckets.count());
            tell(format!("{family}_count"), Vec::new(), count);
        }
    }
}

fn counted(number: Number) -> Told {
    match number {
        Number::Whole(count) => Told::Counter(count),
        Number::Float(value) => Told::Gauge(value),
    }
}
