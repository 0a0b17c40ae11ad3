//! All metrics with their values at one moment, in Prometheus' data model. A metric that is added
//! to the table appears here automatically.

use std::borrow::Cow;

use super::buckets::Buckets;
use super::exposition::Number;
use super::names::{self, Name};
use crate::metrics::{self, Description, Gathered, Value};
use plimsoll_stats::gc::{self, CollectorStats};
use plimsoll_stats::stats::{self, AccountStats, DeclaredStats};

/// A metric. Its points are empty while its value is unavailable.
pub struct Metric {
    /// The name.
    pub name: Name,
    /// The description.
    pub help: Cow<'static, str>,
    /// The type of the values.
    pub kind: Kind,
    /// The values.
    pub points: Vec<Point>,
}

/// The type of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sum that only grows, of whole numbers.
    WholeCounter,
    /// A sum that only grows.
    FloatCounter,
    /// A whole number that rises and falls.
    WholeGauge,
    /// A number that rises and falls.
    FloatGauge,
    /// Counts by ranges.
    Histogram {
        /// Whether the sum is a whole number.
        whole_sum: bool,
    },
}

impl Kind {
    fn is_counter(self) -> bool {
        matches!(self, Self::WholeCounter | Self::FloatCounter)
    }
}

/// A label: its name and its value.
pub(crate) type Label = (&'static str, Cow<'static, str>);

/// A value of a metric. The values of one metric differ in their labels.
#[derive(Clone)]
pub struct Point {
    /// The labels, in the order of the page.
    pub labels: Vec<Label>,
    /// The value.
    pub value: Reading,
}

/// A value of a metric.
#[derive(Clone)]
pub enum Reading {
    /// A number.
    Number(Number),
    /// A histogram.
    Buckets {
        /// The counts by range.
        buckets: Buckets,
        /// Exact, or the estimate of the buckets.
        sum: Number,
    },
}

/// The metrics with the sums of histograms, where the sum is known exactly.
const SUMS: &[(&str, &str)] = &[
    ("/gc/heap/allocs-by-size:bytes", "/gc/heap/allocs:bytes"),
    ("/gc/heap/frees-by-size:bytes", "/gc/heap/frees:bytes"),
];

/// Appended to the help text of histograms with an estimated sum.
const ESTIMATED: &str = " The sum is estimated from finer buckets, to an eighth.";

/// Returns all metrics at one moment, always the same ones in the same order. The metrics of the
/// table come first, in its order, then those of each collector, then those of each account, of memory outside of the
/// allocator and of declared memory.
pub fn all(gathered: &Gathered) -> Vec<Metric> {
    let table = metrics::all().enumerate();
    let of_table = table.map(|(at, description)| of_table(at, description, gathered));
    of_table
        .chain(of_each(
            &gc::collectors(),
            "collector",
            |stats| stats.name.into(),
            OF_COLLECTORS,
        ))
        .chain(of_each(
            &stats::accounts(),
            "account",
            |stats| stats.name.into(),
            OF_ACCOUNTS,
        ))
        .chain(of_each(
            &declared(),
            "account",
            |stats| stats.path.clone().into(),
            OF_DECLARED,
        ))
        .collect()
}

fn of_table(at: usize, description: &Description, gathered: &Gathered) -> Metric {
    let kind = match (description.kind, description.cumulative) {
        (metrics::Kind::Uint64, true) => Kind::WholeCounter,
        (metrics::Kind::Uint64, false) => Kind::WholeGauge,
        (metrics::Kind::Float64, true) => Kind::FloatCounter,
        (metrics::Kind::Float64, false) => Kind::FloatGauge,
        (metrics::Kind::Float64Histogram, _) => Kind::Histogram {
            whole_sum: sum_of(description.name).is_some(),
        },
    };
    let name = names::prometheus_name(description.name, kind.is_counter());
    let mut help = Cow::Borrowed(description.description);
    if kind == (Kind::Histogram { whole_sum: false }) {
        help.to_mut().push_str(ESTIMATED);
    }
    let value = match value(gathered, at) {
        Value::Uint64(value) => Some(Reading::Number(value.into())),
        Value::Float64(value) => Some(Reading::Number(value.into())),
        Value::Float64Histogram(histogram) => {
            let buckets = Buckets::new(&histogram.counts, histogram.buckets, &name.unit);
            let sum = match sum_of(description.name).map(|at| value(gathered, at)) {
                Some(Value::Uint64(sum)) => sum.into(),
                _ => buckets.estimated_sum.into(),
            };
            Some(Reading::Buckets { buckets, sum })
        }
        Value::Bad => None,
    };
    let points = value.map(|value| Point {
        labels: Vec::new(),
        value,
    });
    Metric {
        name,
        help,
        kind,
        points: points.into_iter().collect(),
    }
}

/// Returns the position of a histogram's sum in the table.
fn sum_of(histogram: &str) -> Option<usize> {
    let (_, sum) = SUMS.iter().find(|(name, _)| *name == histogram)?;
    position(sum)
}

/// Returns the position of a metric in the table.
pub(crate) fn position(name: &str) -> Option<usize> {
    metrics::all().position(|description| description.name == name)
}

/// Returns the value of the metric at that position.
pub fn value(gathered: &Gathered, at: usize) -> Value {
    let mut value = Value::Bad;
    gathered.read(at, &mut value);
    value
}

/// A metric with a point for each of several things: its name, type, help text, and value.
struct OfEach<T>(&'static str, Kind, &'static str, fn(&T) -> Number);

const OF_COLLECTORS: &[OfEach<CollectorStats>] = &[
    OfEach(
        "/gc/collector/cycles:gc-cycles",
        Kind::WholeCounter,
        "Completed cycles of the collector.",
        |stats| stats.cycles.into(),
    ),
    OfEach(
        "/gc/collector/forced:gc-cycles",
        Kind::WholeCounter,
        "Completed cycles of the collector that the program requested.",
        |stats| stats.forced_cycles.into(),
    ),
    OfEach(
        "/gc/collector/pauses:pauses",
        Kind::WholeCounter,
        "Pauses of the collector.",
        |stats| stats.pauses.into(),
    ),
    OfEach(
        "/gc/collector/pause:seconds",
        Kind::FloatCounter,
        "Total duration of the collector's pauses.",
        |stats| stats.pause_total.as_secs_f64().into(),
    ),
    OfEach(
        "/gc/collector/live:bytes",
        Kind::WholeGauge,
        "Bytes in use in the collector's heap at its last mark termination.",
        |stats| stats.live_bytes.into(),
    ),
    OfEach(
        "/gc/collector/goal:bytes",
        Kind::WholeGauge,
        "Heap size at which the next cycle of the collector is to end.",
        |stats| stats.goal_bytes.into(),
    ),
    OfEach(
        "/gc/collector/metadata:bytes",
        Kind::WholeGauge,
        "Memory that the collector uses for itself.",
        |stats| stats.metadata_bytes.into(),
    ),
];

const OF_ACCOUNTS: &[OfEach<AccountStats>] = &[
    OfEach(
        "/memory/account/reserved:bytes",
        Kind::WholeGauge,
        "Bytes of address space of the account. Exact.",
        |stats| stats.reserved.into(),
    ),
    OfEach(
        "/memory/account/committed:bytes",
        Kind::WholeGauge,
        "Bytes of the account that may be resident. Exact.",
        |stats| stats.committed.into(),
    ),
    OfEach(
        "/memory/account/commits:bytes",
        Kind::WholeCounter,
        "Bytes that the account has ever committed. Exact.",
        |stats| stats.total_committed.into(),
    ),
    OfEach(
        "/memory/account/excess:bytes",
        Kind::WholeGauge,
        "Difference by which the account does not balance.",
        |stats| stats.excess.into(),
    ),
];

const OF_DECLARED: &[OfEach<DeclaredStats>] = &[
    OfEach(
        "/memory/declared/account:bytes",
        Kind::WholeGauge,
        "Bytes that the program declares in the account and those inside it. Exact.",
        |stats| stats.declared.into(),
    ),
    OfEach(
        "/memory/declared/account-peak:bytes",
        Kind::WholeGauge,
        "The maximum of the bytes that the program has declared in the account. Exact.",
        |stats| stats.peak_declared.into(),
    ),
    OfEach(
        "/memory/declared/account-allocated:bytes",
        Kind::WholeGauge,
        "Bytes in use by the work that is charged to the account or to one inside it. Exact.",
        |stats| stats.allocated.into(),
    ),
    OfEach(
        "/memory/declared/account-allocated-peak:bytes",
        Kind::WholeGauge,
        "The maximum of the bytes in use by the work that is charged to the account. Exact.",
        |stats| stats.peak_allocated.into(),
    ),
];

/// The maximum number of accounts with points, and the maximum number of their names: each has its own time series.
const MAX_DECLARED: (usize, usize) = (256, 2);

/// Returns the declared accounts with points, the outer ones. Accounts of equal paths are one, with the sums of their
/// figures.
fn declared() -> Vec<DeclaredStats> {
    let (accounts, names) = MAX_DECLARED;
    let mut points: Vec<DeclaredStats> = Vec::new();
    let is_outer = |account: &DeclaredStats| account.path.split('/').count() <= names;
    for account in stats::declared().into_iter().filter(is_outer) {
        let has_room = points.len() < accounts;
        match points.iter_mut().find(|known| known.path == account.path) {
            Some(known) => {
                for (sum, more) in [
                    (&mut known.declared, account.declared),
                    (&mut known.peak_declared, account.peak_declared),
                    (&mut known.allocated, account.allocated),
                    (&mut known.peak_allocated, account.peak_allocated),
                ] {
                    // A program may declare any number.
                    *sum = sum.saturating_add(more);
                }
            }
            None if has_room => points.push(account),
            None => {}
        }
    }
    points
}

/// Returns the metrics of a table, with a point for each thing that has a name.
fn of_each<T>(
    things: &[T],
    label: &'static str,
    name_of: fn(&T) -> Cow<'static, str>,
    table: &'static [OfEach<T>],
) -> Vec<Metric> {
    let metric = |&OfEach(name, kind, help, value): &OfEach<T>| {
        let points = things.iter().map(|thing| Point {
            labels: vec![(label, name_of(thing))],
            value: Reading::Number(value(thing)),
        });
        Metric {
            name: names::prometheus_name(name, kind.is_counter()),
            help: help.into(),
            kind,
            points: points.collect(),
        }
    };
    table.iter().map(metric).collect()
}
