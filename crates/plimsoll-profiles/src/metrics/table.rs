//! The metrics, sorted by name, with their descriptions and sources. A new metric needs a line
//! here. A test writes `docs/reference/metrics.md` from the table if `PLIMSOLL_WRITE_DOCS` is set.

mod extensions;
mod memory;
mod sched;

use super::gather::Gathered;
use super::{Description, Kind};
use plimsoll_core::histogram::Histogram;
use plimsoll_core::histogram::TimeCounts;
use plimsoll_ledger::size_class::go;
use plimsoll_stats::stats::{ClassCounts, LargeCounts};

/// A row of the table.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) description: Description,
    pub(super) read: Read,
}

/// The function that reads a value.
#[derive(Clone, Copy)]
pub(super) enum Read {
    Uint64(fn(&Gathered) -> u64),
    Float64(fn(&Gathered) -> f64),
    Float64Histogram(fn(&Gathered, &mut Histogram)),
}

/// Returns a metric that counts events and never falls.
const fn count(name: &'static str, text: &'static str, read: fn(&Gathered) -> u64) -> Metric {
    metric(name, text, Kind::Uint64, true, Read::Uint64(read))
}

/// Returns a metric of a current quantity.
const fn value(name: &'static str, text: &'static str, read: fn(&Gathered) -> u64) -> Metric {
    metric(name, text, Kind::Uint64, false, Read::Uint64(read))
}

/// Returns a metric of a time that never falls.
const fn seconds(name: &'static str, text: &'static str, read: fn(&Gathered) -> f64) -> Metric {
    metric(name, text, Kind::Float64, true, Read::Float64(read))
}

/// Returns a metric of a current rate.
const fn rate(name: &'static str, text: &'static str, read: fn(&Gathered) -> f64) -> Metric {
    metric(name, text, Kind::Float64, false, Read::Float64(read))
}

const fn histogram(
    name: &'static str,
    text: &'static str,
    read: fn(&Gathered, &mut Histogram),
) -> Metric {
    let read = Read::Float64Histogram(read);
    metric(name, text, Kind::Float64Histogram, true, read)
}

const fn metric(
    name: &'static str,
    description: &'static str,
    kind: Kind,
    cumulative: bool,
    read: Read,
) -> Metric {
    Metric {
        description: Description {
            name,
            description,
            kind,
            cumulative,
        },
        read,
    }
}

/// The table, sorted by name.
pub(super) static METRICS: [Metric; COUNT] = {
    let parts: [&[Metric]; 3] = [&memory::METRICS, &extensions::METRICS, &sched::METRICS];
    let mut all = [memory::METRICS[0]; COUNT];
    let (mut part, mut from, mut to) = (0, 0, 0);
    while to < COUNT {
        if from == parts[part].len() {
            (part, from) = (part + 1, 0);
        } else {
            all[to] = parts[part][from];
            (from, to) = (from + 1, to + 1);
        }
    }
    all
};

const COUNT: usize = memory::METRICS.len() + extensions::METRICS.len() + sched::METRICS.len();

/// The source of histograms that are always empty.
static NO_TIMES: TimeCounts<1> = TimeCounts::new();

fn nanoseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The boundaries of Go's size classes.
static SIZES: [f64; go::CLASSES + 1] = {
    let mut boundaries = [f64::INFINITY; go::CLASSES + 1];
    let mut class = 0;
    while class < go::CLASSES {
        boundaries[class] = (go::SIZES[class] + 1) as f64;
        class += 1;
    }
    boundaries
};

/// Counts blocks in Go's size classes, with the large ones last.
fn by_size(
    gathered: &Gathered,
    histogram: &mut Histogram,
    small: fn(&ClassCounts) -> u64,
    large: fn(&LargeCounts) -> u64,
) {
    let heap = gathered.heap();
    histogram.buckets = &SIZES;
    histogram.counts.clear();
    histogram.counts.resize(go::CLASSES, 0);
    for (counts, go_class) in heap.by_class.iter().zip(go::OF_CLASS) {
        // Go's class 0 is unused.
        histogram.counts[usize::from(go_class) - 1] += small(counts);
    }
    histogram.counts[go::CLASSES - 1] = large(&heap.large);
}
