//! All metrics with their values at one moment, in Prometheus' data model. A metric that is added
//! to the table appears here automatically.

use std::borrow::Cow;

use super::buckets::Buckets;
use super::exposition::Number;
use super::names::{self, Name};
use crate::gc::{self, CollectorStats};
use crate::metrics::{self, Description, Gathered, Value};
use crate::stats::{self, AccountStats};

/// A metric. Its points are empty while its value is unavailable.
pub(crate) struct Metric {
    pub(crate) name: Name,
    pub(crate) help: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) points: Vec<Point>,
}

/// The type of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    WholeCounter,
    FloatCounter,
    WholeGauge,
    FloatGauge,
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
pub(crate) type Label = (&'static str, &'static str);

/// A value of a metric. The values of one metric differ in their labels.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) labels: Vec<Label>,
    pub(crate) value: Reading,
}

#[derive(Clone)]
pub(crate) enum Reading {
    Number(Number),
    Buckets {
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
/// table come first, in its order, then those of each collector, then those of each account.
pub(crate) fn all(gathered: &Gathered) -> Vec<Metric> {
    let table = metrics::all().enumerate();
    let of_table = table.map(|(at, description)| of_table(at, description, gathered));
    of_table
        .chain(of_collectors(&gc::collectors()))
        .chain(of_accounts(&stats::accounts()))
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
    let name = names::of(description.name, kind.is_counter());
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

pub(crate) fn value(gathered: &Gathered, at: usize) -> Value {
    let mut value = Value::Bad;
    gathered.read(at, &mut value);
    value
}

/// A metric of each collector: its name, type, help text, and value.
struct OfCollector(
    &'static str,
    Kind,
    &'static str,
    fn(&CollectorStats) -> Number,
);

const OF_COLLECTORS: &[OfCollector] = &[
    OfCollector(
        "/gc/collector/cycles:gc-cycles",
        Kind::WholeCounter,
        "Completed cycles of the collector.",
        |stats| stats.cycles.into(),
    ),
    OfCollector(
        "/gc/collector/forced:gc-cycles",
        Kind::WholeCounter,
        "Completed cycles of the collector that the program requested.",
        |stats| stats.forced_cycles.into(),
    ),
    OfCollector(
        "/gc/collector/pauses:pauses",
        Kind::WholeCounter,
        "Pauses of the collector.",
        |stats| stats.pauses.into(),
    ),
    OfCollector(
        "/gc/collector/pause:seconds",
        Kind::FloatCounter,
        "Total duration of the collector's pauses.",
        |stats| stats.pause_total.as_secs_f64().into(),
    ),
    OfCollector(
        "/gc/collector/live:bytes",
        Kind::WholeGauge,
        "Bytes in use in the collector's heap at its last mark termination.",
        |stats| stats.live_bytes.into(),
    ),
    OfCollector(
        "/gc/collector/goal:bytes",
        Kind::WholeGauge,
        "Heap size at which the next cycle of the collector is to end.",
        |stats| stats.goal_bytes.into(),
    ),
    OfCollector(
        "/gc/collector/metadata:bytes",
        Kind::WholeGauge,
        "Memory that the collector uses for itself.",
        |stats| stats.metadata_bytes.into(),
    ),
];

fn of_collectors(collectors: &[CollectorStats]) -> impl Iterator<Item = Metric> {
    OF_COLLECTORS
        .iter()
        .map(|&OfCollector(name, kind, help, value)| {
            let points = collectors.iter().map(|stats| Point {
                labels: vec![("collector", stats.name)],
                value: Reading::Number(value(stats)),
            });
            Metric {
                name: names::of(name, kind.is_counter()),
                help: help.into(),
                kind,
                points: points.collect(),
            }
        })
}

/// A metric of each account: its name, type, help text, and value.
struct OfAccount(
    &'static str,
    Kind,
    &'static str,
    fn(&AccountStats) -> Number,
);

const OF_ACCOUNTS: &[OfAccount] = &[
    OfAccount(
        "/memory/account/reserved:bytes",
        Kind::WholeGauge,
        "Bytes of address space of the account. Exact.",
        |stats| stats.reserved.into(),
    ),
    OfAccount(
        "/memory/account/committed:bytes",
        Kind::WholeGauge,
        "Bytes of the account that may be resident. Exact.",
        |stats| stats.committed.into(),
    ),
    OfAccount(
        "/memory/account/commits:bytes",
        Kind::WholeCounter,
        "Bytes that the account has ever committed. Exact.",
        |stats| stats.total_committed.into(),
    ),
    OfAccount(
        "/memory/account/excess:bytes",
        Kind::WholeGauge,
        "Difference by which the account does not balance.",
        |stats| stats.excess.into(),
    ),
];

fn of_accounts(accounts: &[AccountStats]) -> impl Iterator<Item = Metric> {
    OF_ACCOUNTS
        .iter()
        .map(|&OfAccount(name, kind, help, value)| {
            let points = accounts.iter().map(|stats| Point {
                labels: vec![("account", stats.name)],
                value: Reading::Number(value(stats)),
            });
            Metric {
                name: names::of(name, kind.is_counter()),
                help: help.into(),
                kind,
                points: points.collect(),
            }
        })
}
