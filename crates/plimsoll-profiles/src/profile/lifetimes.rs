//! The `lifetimes` profile: how long freed memory had been in use, by allocation site.

use plimsoll_leaves::leaves;
use plimsoll_pprof::kinds::{self, ProfileKind};

use super::moment::Moment;
use super::reading::{MAX_VALUES, Reading, Row, SPACE, Sample, Stack, Tag, TextReading, ValueType};

use super::Source;
use plimsoll_core::sampler;
use plimsoll_core::sampler::lifetime::{self, cell};
use plimsoll_core::stack::{Kind, Record, TABLE};

pub(super) struct Lifetimes;

const SAMPLE_TYPES: [ValueType; 4] = [
    ValueType {
        name: "freed_objects",
        unit: "count",
    },
    ValueType {
        name: "freed_space",
        unit: "bytes",
    },
    ValueType {
        name: "temporary_objects",
        unit: "count",
    },
    ValueType {
        name: "temporary_space",
        unit: "bytes",
    },
];

const COMMENTS: [&str; 2] = [
    "plimsoll: lifetime is the lower bound of a decade, in nanoseconds; blocks in use are not included",
    "plimsoll: temporary blocks are those that their thread freed before its next allocation",
];

impl Source for Lifetimes {
    fn kind(&self) -> ProfileKind {
        kinds::LIFETIMES
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        records().len()
    }

    fn read(&self) -> Reading {
        Reading {
            total: None,
            sample_types: &SAMPLE_TYPES,
            default_type: "freed_space",
            period_type: SPACE,
            period: sampler::rate() as i64,
            moment: Moment::now(),
            duration_nanos: 0,
            samples: records().iter().map(sample).collect(),
            leaf: leaves::allocation::leaf,
            comments: super::comments_on_whole(|| COMMENTS.map(str::to_owned).to_vec()),
        }
    }

    fn read_text(&self) -> TextReading {
        let mut records = records();
        records.sort_by_key(|record| std::cmp::Reverse(record.cells[cell::BYTES]));
        let rows = records.iter().map(|record| {
            let Sample { stack, values, tag } = sample(record);
            let lived = match lifetime::range(record.size) {
                Some((from, Some(to))) => format!(" [lived {} to {}]", time(from), time(to)),
                Some((from, None)) => format!(" [lived {} or more]", time(from)),
                None => String::new(),
            };
            Row {
                values: format!("{}: {}{lived}", values[0], values[1]),
                stack,
                tag,
            }
        });
        TextReading {
            head: format!("lifetimes profile: @ heap/{}\n", sampler::rate()),
            rows: rows.collect(),
            leaf: leaves::allocation::leaf,
            tail: String::new(),
        }
    }
}

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    TABLE.read(Kind::Lifetime, |record| records.push(record));
    records
}

fn sample(record: &Record) -> Sample {
    let mut values = [0; MAX_VALUES];
    values[0] = lifetime::blocks(record.cells[cell::WEIGHT]);
    values[1] = record.cells[cell::BYTES] as i64;
    values[2] = lifetime::blocks(record.cells[cell::TEMPORARY_WEIGHT]);
    values[3] = record.cells[cell::TEMPORARY_BYTES] as i64;
    Sample {
        stack: Stack::from_record(record),
        values,
        tag: match lifetime::range(record.size) {
            Some((from, _)) => Tag::Lifetime(from as i64, record.labels),
            None => Tag::Labels(record.labels),
        },
    }
}

/// Formats a power of ten of nanoseconds.
fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0 => "0".into(),
        1_000..1_000_000 => format!("{}us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanoseconds / 1_000_000),
        1_000_000_000.. => format!("{}s", nanoseconds / 1_000_000_000),
        _ => format!("{nanoseconds}ns"),
    }
}
