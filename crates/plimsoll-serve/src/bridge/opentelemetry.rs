//! Plimsoll's metrics as instruments of OpenTelemetry.
//!
//! OpenTelemetry observes the values of counters and gauges at its own times, but its histograms
//! receive one value at a time. Plimsoll's histograms become three counters, as in Prometheus:
//! `..._bucket`, with an attribute `le` for the largest value that each counts, `..._sum`, and
//! `..._count`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ::opentelemetry::KeyValue;
use ::opentelemetry::metrics::{AsyncInstrument, AsyncInstrumentBuilder, Meter};

use plimsoll_sys::primitives::Mutex;

use super::gather;
use plimsoll_profiles::export::prometheus::exposition::{Number, put_number};
use plimsoll_profiles::export::prometheus::series::{Kind, Metric, Point, Reading};

/// Makes instruments of all metrics. They are observed as long as the provider of the meter exists;
/// one call for each meter is enough.
///
/// ```
/// use opentelemetry::metrics::MeterProvider;
/// use opentelemetry_sdk::metrics::SdkMeterProvider;
///
/// let provider = SdkMeterProvider::builder().build();
/// plimsoll::bridge::opentelemetry::register(&provider.meter("plimsoll"));
/// ```
pub fn register(meter: &Meter) {
    let latest = Arc::new(Latest::default());
    for (at, metric) in gather().iter().enumerate() {
        let name = metric.name.family.clone();
        let view = |part| View {
            latest: Arc::clone(&latest),
            metric: at,
            part,
            seen: AtomicU64::new(0),
        };
        let whole = |name| (meter.u64_observable_counter(name), metric);
        let float = |name| (meter.f64_observable_counter(name), metric);
        // The meter keeps the instruments.
        match metric.kind {
            Kind::WholeCounter => {
                described(whole(name), view(Part::Number)).build();
            }
            Kind::FloatCounter => {
                described(float(name), view(Part::Number)).build();
            }
            Kind::WholeGauge => {
                let gauge = meter.u64_observable_gauge(name);
                described((gauge, metric), view(Part::Number)).build();
            }
            Kind::FloatGauge => {
                let gauge = meter.f64_observable_gauge(name);
                described((gauge, metric), view(Part::Number)).build();
            }
            Kind::Histogram { whole_sum } => {
                let buckets = described(whole(format!("{name}_bucket")), view(Part::Buckets));
                buckets.with_unit("1").build();
                let count = described(whole(format!("{name}_count")), view(Part::Count));
                count.with_unit("1").build();
                let sum = format!("{name}_sum");
                if whole_sum {
                    described(whole(sum), view(Part::Sum)).build();
                } else {
                    described(float(sum), view(Part::Sum)).build();
                }
            }
        }
    }
}

/// Sets the description, unit and source of values of an instrument.
fn described<'a, I, M>(
    (builder, metric): (AsyncInstrumentBuilder<'a, I, M>, &Metric),
    view: View,
) -> AsyncInstrumentBuilder<'a, I, M>
where
    M: From<Number>,
{
    let unit = match &*metric.name.unit {
        "bytes" => "By".into(),
        "bytes_per_second" => "By/s".into(),
        "seconds" => "s".into(),
        "percent" => "%".into(),
        "" => "1".into(),
        other => format!("{{{other}}}"),
    };
    builder
        .with_description(metric.help.clone())
        .with_unit(unit)
        .with_callback(move |observer| view.observe(observer))
}

/// One instrument's part of the last gathering.
struct View {
    latest: Arc<Latest>,
    /// The index of the metric.
    metric: usize,
    part: Part,
    /// The last gathering that the instrument has read.
    seen: AtomicU64,
}

/// A part of a metric.
#[derive(Clone, Copy)]
enum Part {
    Number,
    Buckets,
    Sum,
    Count,
}

/// The last gathering, which all instruments share that are observed at the same time. An
/// instrument that has already read it gathers anew. Each instrument thus sees a later gathering
/// each time, and its counts never fall.
#[derive(Default)]
struct Latest(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    /// The number of the gathering, from 1 on.
    number: u64,
    /// The time of the gathering; `None` before the first.
    at: Option<Instant>,
    metrics: Vec<Metric>,
}

/// Maximum age of a reading, for an instrument that is observed rarely.
const OLDEST: Duration = Duration::from_secs(1);

impl Latest {
    fn points(&self, metric: usize, seen: &AtomicU64) -> Vec<Point> {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = gathered.at.is_none_or(|at| at.elapsed() > OLDEST);
        if is_old || gathered.number == seen.load(Ordering::Relaxed) {
            *gathered = Gathered {
                number: gathered.number + 1,
                at: Some(Instant::now()),
                metrics: gather(),
            };
        }
        seen.store(gathered.number, Ordering::Relaxed);
        gathered.metrics[metric].points.clone()
    }
}

impl View {
    fn observe<M: From<Number>>(&self, observer: &dyn AsyncInstrument<M>) {
        for point in self.latest.points(self.metric, &self.seen) {
            let labels = point.labels.iter();
            let mut labels: Vec<KeyValue> = labels
                .map(|(name, value)| KeyValue::new(*name, value.clone().into_owned()))
                .collect();
            match (&point.value, self.part) {
                (Reading::Number(number), _) => observer.observe((*number).into(), &labels),
                (Reading::Buckets { buckets, .. }, Part::Buckets) => {
                    for &(up_to, count) in &buckets.up_to {
                        let mut last = String::new();
                        put_number(&mut last, up_to.into());
                        labels.push(KeyValue::new("le", last));
                        observer.observe(Number::Whole(count).into(), &labels);
                        labels.pop();
                    }
                }
                (Reading::Buckets { sum, .. }, Part::Sum) => {
                    observer.observe((*sum).into(), &labels)
                }
                (Reading::Buckets { buckets, .. }, _) => {
                    observer.observe(Number::Whole(buckets.count()).into(), &labels);
                }
            }
        }
    }
}
