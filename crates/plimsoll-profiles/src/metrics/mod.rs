//! All metrics, under the names of Go's `runtime/metrics`.
//!
//! The page of `plimsoll::metrics` describes them for programs. The table has one row for each, with how it is read.

mod gather;
mod table;

use std::borrow::Cow;

use plimsoll_sys::primitives::{AtomicU64, Ordering};

pub use gather::Gathered;
pub use plimsoll_core::histogram::Histogram;
use plimsoll_core::overhead;
use table::{METRICS, Read};

/// The bits of the growth of leaking sites, in bytes a second.
static GROWTH: AtomicU64 = AtomicU64::new(0);

/// Sets the growth of all leaking sites, in bytes a second.
pub fn set_growth(bytes_per_second: f64) {
    GROWTH.store(bytes_per_second.to_bits(), Ordering::Relaxed);
}

fn growth() -> f64 {
    f64::from_bits(GROWTH.load(Ordering::Relaxed))
}

/// The kind of a metric's value. It never changes.
///
/// ```
/// use plimsoll::metrics::{self, Kind};
///
/// let mut histograms = metrics::all().filter(|metric| metric.kind == Kind::Float64Histogram);
/// assert!(histograms.any(|metric| metric.name == "/gc/heap/allocs-by-size:bytes"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A whole number.
    Uint64,
    /// A number that is neither infinite nor NaN.
    Float64,
    /// Counts of values by their size.
    Float64Histogram,
}

/// The description of a metric.
///
/// ```
/// use plimsoll::metrics::{self, Kind};
///
/// let allocs = metrics::all().find(|metric| metric.name == "/gc/heap/allocs:bytes");
/// let allocs = allocs.expect("one of Go's metrics");
/// assert_eq!(allocs.kind, Kind::Uint64);
/// assert!(allocs.cumulative);
/// println!("{}", allocs.description);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The name, `/path/of/words:unit`.
    pub name: &'static str,
    /// The meaning, in some sentences.
    pub description: &'static str,
    /// The kind of the metric's value.
    pub kind: Kind,
    /// Whether the value never falls between two readings in the life of the process. For a
    /// histogram, this applies to each of its counts.
    pub cumulative: bool,
}

/// Returns all metrics, sorted by name.
pub fn all() -> impl ExactSizeIterator<Item = &'static Description> + Clone {
    METRICS.iter().map(|metric| &metric.description)
}

/// The value of a metric.
///
/// ```
/// use plimsoll::metrics::{self, Kind, Sample, Value};
///
/// let mut samples = [Sample::new("/gc/heap/allocs-by-size:bytes"), Sample::new("/no/such:thing")];
/// assert_eq!(samples[0].value, Value::Bad);
/// metrics::read(&mut samples);
/// assert_eq!(samples[0].value.kind(), Some(Kind::Float64Histogram));
/// assert_eq!(samples[1].value, Value::Bad);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No metric has that name, or it was not read so far.
    #[default]
    Bad,
    /// See [`Kind::Uint64`].
    Uint64(u64),
    /// See [`Kind::Float64`].
    Float64(f64),
    /// See [`Kind::Float64Histogram`].
    Float64Histogram(Histogram),
}

impl Value {
    /// Returns the kind; `None` for [`Value::Bad`].
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Bad => None,
            Self::Uint64(_) => Some(Kind::Uint64),
            Self::Float64(_) => Some(Kind::Float64),
            Self::Float64Histogram(_) => Some(Kind::Float64Histogram),
        }
    }
}

/// A metric to be read, with its value.
///
/// ```
/// use plimsoll::metrics::{self, Sample, Value};
///
/// let mut samples = [Sample::new("/gc/heap/objects:objects")];
/// metrics::read(&mut samples);
/// let Value::Uint64(objects) = samples[0].value else { panic!("kinds never change") };
/// println!("{}: {objects}", samples[0].name());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    name: Cow<'static, str>,
    /// The index in the table.
    metric: Option<usize>,
    /// The value of the last reading.
    pub value: Value,
}

impl Sample {
    /// Creates a sample that was not read so far. Any name is allowed: see [`Value::Bad`].
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        let found = METRICS.binary_search_by_key(&&*name, |metric| metric.description.name);
        Self {
            name,
            metric: found.ok(),
            value: Value::Bad,
        }
    }

    /// Returns the name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reads the values of metrics. Takes some microseconds for all of them, and 20 nanoseconds for
/// each task if metrics of tasks are included. No thread is stopped.
///
/// Related figures are gathered once, so that they agree: those of memory, of collectors, of
/// processors, of locks, of tasks, and of threads. Each group belongs to one moment, some
/// microseconds from those of the others. The memory of histograms is reused: the second reading of
/// the same samples allocates nothing.
///
/// Not for signal handlers.
pub fn read(samples: &mut [Sample]) {
    if samples.is_empty() {
        return;
    }
    let _time = overhead::measure();
    let gathered = Gathered::default();
    for sample in samples {
        match sample.metric {
            Some(metric) => gathered.read(metric, &mut sample.value),
            None => sample.value = Value::Bad,
        }
    }
}

impl Gathered {
    /// Reads the metric with that index in [`all`].
    pub fn read(&self, metric: usize, value: &mut Value) {
        match METRICS[metric].read {
            Read::Uint64(read) => *value = Value::Uint64(read(self)),
            Read::Float64(read) => *value = Value::Float64(read(self)),
            Read::Float64Histogram(read) => {
                let mut histogram = match std::mem::take(value) {
                    Value::Float64Histogram(histogram) => histogram,
                    _ => Histogram::default(),
                };
                read(self, &mut histogram);
                *value = Value::Float64Histogram(histogram);
            }
        }
    }
}
