//! Plimsoll's metrics as instruments of OpenTelemetry.
//!
//! OpenTelemetry asks for the values of counters and gauges when it wants them, but not for those
//! of histograms, which want to be told each value by itself. Those of Plimsoll are three counters,
//! as Prometheus has them: `..._bucket`, with an attribute `le` for the largest value that each
//! counts, `..._sum`, and `..._count`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ::opentelemetry::KeyValue;
use ::opentelemetry::metrics::{AsyncInstrument, AsyncInstrumentBuilder, Meter};

use super::gather;
use crate::export::prometheus::exposition::{Number, put_number};
use crate::export::prometheus::series::{Kind, Metric, Point, Reading};
use crate::primitives::Mutex;

/// Makes instruments of all metrics. They are asked for as long as the provider of the meter is
/// there; so once for each meter is enough.
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
        // What is built stays with the meter; there is nothing to keep.
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

/// What an instrument says of itself, and where it has its values from.
fn described<'a, I, M>(
    (builder, metric): (AsyncInstrumentBuilder<'a, I, M>, &Metric),
    view: View,
) -> AsyncInstrumentBuilder<'a, I, M>
where
    M: From<Number>,
{
    let unit = match &*metric.name.unit {
        "bytes" => "By".into(),
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

/// One instrument's part of what was gathered last.
struct View {
    latest: Arc<Latest>,
    /// The number of the metric.
    metric: usize,
    part: Part,
    /// The last gathering that it was asked for.
    seen: AtomicU64,
}

/// What of a metric.
#[derive(Clone, Copy)]
enum Part {
    Number,
    Buckets,
    Sum,
    Count,
}

/// What was gathered last, for all instruments that are asked at the same time: whichever has been
/// asked for it already gathers anew. So each sees a later one each time, and its counts never
/// fall.
#[derive(Default)]
struct Latest(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    /// They are counted from 1 on.
    number: u64,
    /// `None` before the first.
    at: Option<Instant>,
    metrics: Vec<Metric>,
}

/// How long ago it may have been, for an instrument that nobody asks for but now and then.
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
            match (&point.value, self.part) {
                (Reading::Number(number), _) => {
                    let label = point.label.map(|(name, value)| KeyValue::new(name, value));
                    observer.observe((*number).into(), label.as_slice());
                }
                (Reading::Buckets { buckets, .. }, Part::Buckets) => {
                    for &(up_to, count) in &buckets.up_to {
                        let mut last = String::new();
                        put_number(&mut last, up_to.into());
                        observer.observe(Number::Whole(count).into(), &[KeyValue::new("le", last)]);
                    }
                }
                (Reading::Buckets { sum, .. }, Part::Sum) => observer.observe((*sum).into(), &[]),
                (Reading::Buckets { buckets, .. }, _) => {
                    observer.observe(Number::Whole(buckets.count()).into(), &[]);
                }
            }
        }
    }
}
