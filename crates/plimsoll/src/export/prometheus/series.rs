//! Every metric there is, with its values of one moment, as Prometheus and those who took after it
//! have metrics. What is added to the table of metrics is here by that.

use std::borrow::Cow;

use super::buckets::Buckets;
use super::exposition::Number;
use super::names::{self, Name};
use crate::gc::{self, CollectorStats};
use crate::metrics::{self, Description, Gathered, Value};
use crate::stats::{self, AccountStats};

/// A metric. If it has no points, there is nothing to say of it now.
pub(crate) struct Metric {
    pub(crate) name: Name,
    pub(crate) help: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) points: Vec<Point>,
}

/// What the values of a metric are.
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

/// A value. Those of a metric differ in what they are of, if it has several.
#[derive(Clone)]
pub(crate) struct Point {
    /// What it is of: the name and the value of a label.
    pub(crate) label: Option<(&'static str, &'static str)>,
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

/// What the values of a histogram add up to, where that is known.
const SUMS: &[(&str, &str)] = &[
    ("/gc/heap/allocs-by-size:bytes", "/gc/heap/allocs:bytes"),
    ("/gc/heap/frees-by-size:bytes", "/gc/heap/frees:bytes"),
];

/// What is said of the sum of the others.
const ESTIMATED: &str = " The sum is estimated from finer buckets, to an eighth.";

/// All, of one moment, and always the same ones in the same order: those of the table in its
/// order, then those of each collector, and of each account.
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
    let points = value.map(|value| Point { label: None, value });
    Metric {
        name,
        help,
        kind,
        points: points.into_iter().collect(),
    }
}

/// Where the sum of a histogram is in the table.
fn sum_of(histogram: &str) -> Option<usize> {
    let (_, sum) = SUMS.iter().find(|(name, _)| *name == histogram)?;
    position(sum)
}

/// Where a metric is in the table.
pub(crate) fn position(name: &str) -> Option<usize> {
    metrics::all().position(|description| description.name == name)
}

pub(crate) fn value(gathered: &Gathered, at: usize) -> Value {
    let mut value = Value::Bad;
    gathered.read(at, &mut value);
    value
}

/// What there is to say of each collector by itself: the name, what the values are, what it says,
/// and the value.
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
        "Completed cycles of the collector that the program asked for.",
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
        "How long the pauses of the collector have taken.",
        |stats| stats.pause_total.as_secs_f64().into(),
    ),
    OfCollector(
        "/gc/collector/live:bytes",
        Kind::WholeGauge,
        "What was in use of the collector's heap when it last looked.",
        |stats| stats.live_bytes.into(),
    ),
    OfCollector(
        "/gc/collector/goal:bytes",
        Kind::WholeGauge,
        "At how many bytes the next cycle of the collector is to be over.",
        |stats| stats.goal_bytes.into(),
    ),
    OfCollector(
        "/gc/collector/metadata:bytes",
        Kind::WholeGauge,
        "Memory of the collector's own.",
        |stats| stats.metadata_bytes.into(),
    ),
];

fn of_collectors(collectors: &[CollectorStats]) -> impl Iterator<Item = Metric> {
    OF_COLLECTORS
        .iter()
        .map(|&OfCollector(name, kind, help, value)| {
            let points = collectors.iter().map(|stats| Point {
                label: Some(("collector", stats.name)),
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

/// What there is to say of each account by itself.
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
        "Bytes of addresses that the account has. Exact.",
        |stats| stats.reserved.into(),
    ),
    OfAccount(
        "/memory/account/committed:bytes",
        Kind::WholeGauge,
        "Bytes of the account that may be in memory. Exact.",
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
        "By how much the account does not add up.",
        |stats| stats.excess.into(),
    ),
];

fn of_accounts(accounts: &[AccountStats]) -> impl Iterator<Item = Metric> {
    OF_ACCOUNTS
        .iter()
        .map(|&OfAccount(name, kind, help, value)| {
            let points = accounts.iter().map(|stats| Point {
                label: Some(("account", stats.name)),
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
