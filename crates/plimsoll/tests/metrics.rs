//! Named metrics: Go's tests of `runtime/metrics`, and what else is said of them.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[path = "metrics/agreement.rs"]
mod agreement;
mod child;
#[path = "metrics/churn.rs"]
mod churn;
#[path = "metrics/names.rs"]
mod names;
#[path = "metrics/pauses.rs"]
mod pauses;

use std::collections::HashMap;

use plimsoll::gc::{Cause, Collector, CpuClass};
use plimsoll::metrics::{self, Histogram, Sample, Value};

/// All metrics, read at once.
struct Everything {
    samples: Vec<Sample>,
    places: HashMap<&'static str, usize>,
}

impl Everything {
    fn new() -> Self {
        let samples = metrics::all()
            .map(|metric| Sample::new(metric.name))
            .collect();
        let names = metrics::all().enumerate();
        let places = names.map(|(at, metric)| (metric.name, at)).collect();
        Self { samples, places }
    }

    fn read(&mut self) {
        metrics::read(&mut self.samples);
    }

    fn now() -> Self {
        let mut all = Self::new();
        all.read();
        all
    }

    fn value(&self, name: &str) -> &Value {
        &self.samples[*self.places.get(name).unwrap_or_else(|| panic!("no {name}"))].value
    }

    fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Uint64(number) => *number,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn seconds(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Float64(seconds) => *seconds,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn histogram(&self, name: &str) -> &Histogram {
        match self.value(name) {
            Value::Float64Histogram(histogram) => histogram,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn all_under(&self, prefix: &str) -> impl Iterator<Item = (&'static str, u64)> {
        let names = self
            .places
            .keys()
            .filter(move |name| name.starts_with(prefix));
        names.map(|name| (*name, self.number(name)))
    }
}

/// What a cumulative value comes to.
fn amount(value: &Value) -> f64 {
    match value {
        Value::Uint64(number) => *number as f64,
        Value::Float64(number) => *number,
        Value::Float64Histogram(histogram) => histogram.total() as f64,
        other => panic!("{other:?}"),
    }
}

/// A whole cycle with a pause, a mark termination, and some work.
fn collect(collector: &Collector, cause: Cause) {
    let cycle = collector.begin(cause);
    let pause = cycle.pause();
    pause.stopped();
    pause.end();
    let mut termination = cycle.mark_termination();
    termination.scanned(3 << 20, 2 << 10, 1 << 10);
    termination.finish(3 << 20, 6 << 20);
    drop(cycle.sweep());
    cycle.end();
    drop(collector.work(CpuClass::MarkDedicated));
}
