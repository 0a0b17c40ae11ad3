//! The `mmap` profile: memory that the program mapped directly, and its part that is still mapped.

use plimsoll_leaves::leaves::Leaf;
use plimsoll_pprof::kinds::{self, ProfileKind};

use super::Source;

use super::moment::Moment;
use super::reading::{MAX_VALUES, Reading, Row, SPACE, Sample, Stack, Tag, TextReading, ValueType};
use plimsoll_core::alloc::mappings::{self, cell};
use plimsoll_core::stack::Record;

pub(super) struct Mmap;

const SAMPLE_TYPES: [ValueType; 4] = [
    ValueType {
        name: "mapped_objects",
        unit: "count",
    },
    ValueType {
        name: "mapped_space",
        unit: "bytes",
    },
    ValueType {
        name: "inuse_objects",
        unit: "count",
    },
    ValueType {
        name: "inuse_space",
        unit: "bytes",
    },
];

impl Source for Mmap {
    fn kind(&self) -> ProfileKind {
        kinds::MMAP
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        records().len()
    }

    fn read(&self) -> Reading {
        let moment = Moment::now();
        let records = records();
        Reading {
            total: None,
            sample_types: &SAMPLE_TYPES,
            default_type: "",
            period_type: SPACE,
            period: 1,
            moment,
            duration_nanos: 0,
            samples: records.iter().map(sample).collect(),
            leaf: |_, _| Leaf::Shown,
            comments: super::comments_on_whole(|| vec![comment(&records)]),
        }
    }

    fn read_text(&self) -> TextReading {
        let mut records = records();
        records.sort_by_key(|record| std::cmp::Reverse(values(record)[3]));
        let row = |[objects, space, inuse_objects, inuse_space]: [i64; 4]| {
            format!("{inuse_objects}: {inuse_space} [{objects}: {space}]")
        };
        let mut total = [0; 4];
        for record in &records {
            for (sum, value) in total.iter_mut().zip(values(record)) {
                *sum += value;
            }
        }
        let rows = records.iter().map(|record| Row {
            values: row(values(record)),
            stack: Stack::from_record(record),
            tag: Tag::Labels(record.labels),
        });
        TextReading {
            head: format!("mmap profile: {}\n", row(total)),
            rows: rows.collect(),
            leaf: |_, _| Leaf::Shown,
            tail: format!("\n# {}\n", comment(&records)),
        }
    }
}

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    mappings::read(|record| records.push(record));
    records
}

/// Returns the values of a sample: everything ever mapped, and the part still mapped.
fn values(record: &Record) -> [i64; 4] {
    let cells = &record.cells;
    let less = |all: usize, gone: usize| cells[all].wrapping_sub(cells[gone]) as i64;
    [
        cells[cell::CALLS] as i64,
        cells[cell::BYTES] as i64,
        less(cell::PIECES, cell::PIECES_GONE),
        less(cell::BYTES, cell::BYTES_GONE),
    ]
}

fn sample(record: &Record) -> Sample {
    let mut all = [0; MAX_VALUES];
    all[..4].copy_from_slice(&values(record));
    Sample {
        stack: Stack::from_record(record),
        values: all,
        tag: Tag::Labels(record.labels),
    }
}

/// Returns the accuracy of the profile, for people who read it.
fn comment(records: &[Record]) -> String {
    let sum = |of: fn(&Record) -> u64| records.iter().map(of).fold(0, u64::wrapping_add);
    let seen = if mappings::are_seen() {
        ""
    } else {
        "; the program contains other functions of these names, which are not observed"
    };
    format!(
        "plimsoll: {} calls have mapped {} bytes, of which {} are unmapped; exact except for {} lost mappings{seen}",
        sum(|record| record.cells[cell::CALLS]),
        sum(|record| record.cells[cell::BYTES]),
        sum(|record| record.cells[cell::BYTES_GONE]),
        mappings::lost(),
    )
}
