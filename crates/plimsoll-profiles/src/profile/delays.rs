//! Common part of block and mutex profiles: events with a count and a waiting time.

use super::moment::Moment;
use super::reading::{MAX_VALUES, Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::waiting;
use plimsoll_core::label::Labels;
use plimsoll_core::stack::{Kind, TABLE};
use plimsoll_waits::contention::{COUNT_BITS, Totals, WaitKind, cell, totals};

const SAMPLE_TYPES: [ValueType; 2] = [
    ValueType {
        name: "contentions",
        unit: "count",
    },
    ValueType {
        name: "delay",
        unit: "nanoseconds",
    },
];

/// The records of one stack with the same labels.
struct Site {
    kind: WaitKind,
    labels: Labels,
    stack: Stack,
    samples: u64,
    /// The number of events, in units of 2^-16.
    count: u64,
    delay_ns: u64,
}

fn sites(kind: Kind) -> Vec<Site> {
    let mut sites = Vec::new();
    TABLE.read(kind, |record| {
        sites.push(Site {
            kind: WaitKind::from_number(record.size),
            labels: record.labels,
            stack: Stack::from_record(&record),
            samples: record.cells[cell::SAMPLES],
            count: record.cells[cell::COUNT],
            delay_ns: record.cells[cell::DELAY],
        });
    });
    sites
}

/// Returns the number of stacks.
pub(super) fn count(kind: Kind) -> usize {
    let mut count = 0;
    TABLE.read(kind, |_| count += 1);
    count
}

/// Reads the profile. `exactly` returns the exact figures that the estimates approximate: a name,
/// the number of events, and their nanoseconds.
pub(super) fn read(kind: Kind, exactly: fn(&Totals) -> (&'static str, u64, u64)) -> Reading {
    let moment = Moment::now();
    let sites = sites(kind);
    let comments = super::comments_on_whole(|| comments(&sites, exactly(&totals())));
    let samples = sites.into_iter().map(|site| {
        let mut values = [0; MAX_VALUES];
        values[0] = (site.count >> COUNT_BITS) as i64;
        values[1] = site.delay_ns as i64;
        Sample {
            stack: site.stack,
            values,
            tag: Tag::Wait(site.kind, site.labels),
        }
    });
    Reading {
        total: None,
        sample_types: &SAMPLE_TYPES,
        default_type: "",
        period_type: SAMPLE_TYPES[0],
        period: 1,
        moment,
        duration_nanos: 0,
        samples: samples.collect(),
        leaf: waiting::leaf,
        comments,
    }
}

/// Returns the accuracy of the profile, for people who read it. `exact` is as in [`read`].
fn comments(sites: &[Site], exact: (&str, u64, u64)) -> Vec<String> {
    let (what, events, nanoseconds) = exact;
    let lost = super::lost_events();
    let sum = |of: fn(&Site) -> u64| sites.iter().map(of).fold(0, u64::wrapping_add);
    vec![
        format!(
            "plimsoll: {what}: {nanoseconds} ns in {events} events exactly; {} ns in {} events estimated from {} samples",
            sum(|site| site.delay_ns),
            sum(|site| site.count) >> COUNT_BITS,
            sum(|site| site.samples),
        ),
        format!(
            "plimsoll: lost: {} events without a stack, {} because the table of stacks was full, {} waits that no release is charged for; {} stacks cut at code that cannot be unwound, {} shortened to the maximum depth",
            lost.without_stack, lost.table_full, lost.waits, lost.cut_stacks, lost.shortened_stacks
        ),
    ]
}

/// Reads the rows of the text format: a line for each stack, the longest delay first.
pub(super) fn read_text(kind: Kind, head: String) -> TextReading {
    let mut sites = sites(kind);
    sites.sort_by_key(|site| std::cmp::Reverse(site.delay_ns));
    let rows = sites.into_iter().map(|site| {
        let row = format!("{} {}", site.delay_ns, site.count >> COUNT_BITS);
        Row {
            values: row,
            stack: site.stack,
            tag: Tag::Wait(site.kind, site.labels),
        }
    });
    TextReading {
        head,
        rows: rows.collect(),
        leaf: waiting::leaf,
        tail: String::new(),
    }
}
