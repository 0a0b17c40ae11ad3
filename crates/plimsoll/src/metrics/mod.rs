//! Everything that there is a number for, by name: Go's `runtime/metrics`.
//!
//! ```
//! use plimsoll::metrics::{self, Sample, Value};
//!
//! let mut samples = [
//!     Sample::new("/gc/heap/allocs:objects"),
//!     Sample::new("/gc/heap/frees:objects"),
//!     Sample::new("/no/such:thing"),
//! ];
//! metrics::read(&mut samples);
//! let [Value::Uint64(allocs), Value::Uint64(frees), Value::Bad] = samples.map(|sample| sample.value)
//! else {
//!     panic!("kinds never change")
//! };
//! assert!(frees <= allocs);
//! ```
//!
//! Names say what and in which unit, `/path/of/words:unit`; [`all`] has them, with what they mean.
//! Those that do not begin with `/plimsoll/` are Go's, and mean what they mean there, as far as
//! that is something in a program without Go's runtime: goroutines are threads of the program and
//! [tracked tasks](crate::task), collectors are those that [say so](crate::gc). Those of Go's that
//! have no meaning here are not there: calls of C functions, a limiter of collections, settings
//! that are not the default.

mod gather;
mod table;

use std::borrow::Cow;

use crate::own_time;
pub use crate::stats::Histogram;
pub(crate) use gather::Gathered;
use table::{METRICS, Read};

/// What kind of value a metric has. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A whole number.
    Uint64,
    /// A number that is neither infinite nor NaN.
    Float64,
    /// Counts of values by how large they are.
    Float64Histogram,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// `/path/of/words:unit`.
    pub name: &'static str,
    /// In some sentences.
    pub description: &'static str,
    /// What kind of value it has.
    pub kind: Kind,
    /// Whether it never falls, from one reading to a later one, as long as the process lives; of a
    /// histogram, each of its counts.
    pub cumulative: bool,
}

/// All metrics that there are, sorted by name.
pub fn all() -> impl ExactSizeIterator<Item = &'static Description> + Clone {
    METRICS.iter().map(|metric| &metric.description)
}

/// The value of a metric.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// There is no metric of that name, or it was not read so far.
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
    /// Its kind; `None` of [`Value::Bad`].
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Bad => None,
            Self::Uint64(_) => Some(Kind::Uint64),
            Self::Float64(_) => Some(Kind::Float64),
            Self::Float64Histogram(_) => Some(Kind::Float64Histogram),
        }
    }
}

/// A metric that is to be read, and what was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    name: Cow<'static, str>,
    /// Its place in the table.
    metric: Option<usize>,
    /// What was read last.
    pub value: Value,
}

impl Sample {
    /// One that was not read so far. Any name will do: see [`Value::Bad`].
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        let found = METRICS.binary_search_by_key(&&*name, |metric| metric.description.name);
        Self {
            name,
            metric: found.ok(),
            value: Value::Bad,
        }
    }

    /// The metric's.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reads the values of metrics: some microseconds for all of them, and 20 nanoseconds for each
/// task, if those are among them. Nobody is stopped.
///
/// Figures that are related are gathered once, so that they agree: those of memory, of collectors,
/// of processors, of locks, of tasks, and of threads. Each of these is of one moment, some
/// microseconds from those of the others. A histogram's memory is used again: the second reading of
/// the same samples allocates nothing.
///
/// Not for signal handlers.
pub fn read(samples: &mut [Sample]) {
    if samples.is_empty() {
        return;
    }
    let _time = own_time::measure();
    let gathered = Gathered::default();
    for sample in samples {
        match sample.metric {
            Some(metric) => gathered.read(metric, &mut sample.value),
            None => sample.value = Value::Bad,
        }
    }
}

impl Gathered {
    /// Reads the metric of that place in [`all`].
    pub(crate) fn read(&self, metric: usize, value: &mut Value) {
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
