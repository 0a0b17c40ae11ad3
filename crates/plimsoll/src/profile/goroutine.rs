//! `goroutine`: who is there, and what everybody is doing. Go's name for it, which its tools know.

use std::collections::HashMap;

use super::activity::Record;
use super::reading::{
    Leaf, MOST_VALUES, Reading, Row, Sample, Stack, Tag, TextReading, ValueType, now_nanos,
};
use super::{Source, waiting};
use crate::thread::{self, How};

pub(super) struct Goroutine;

const SAMPLE_TYPES: [ValueType; 1] = [ValueType {
    name: "goroutine",
    unit: "count",
}];

impl Source for Goroutine {
    fn name(&self) -> &'static str {
        "goroutine"
    }

    fn description(&self) -> &'static str {
        "Stacks of all threads. Use debug=2 for one of each, with all that is known of it."
    }

    fn count(&self) -> usize {
        thread::count()
    }

    fn read(&self) -> Reading {
        let time_nanos = now_nanos();
        let Everybody { records, comments } = everybody(How::ToCount);
        let samples = records.into_iter().map(|record| {
            let mut values = [0; MOST_VALUES];
            values[0] = 1;
            Sample {
                stack: record.stack(),
                values,
                tag: Tag::Activity(record.activity),
            }
        });
        Reading {
            sample_types: &SAMPLE_TYPES,
            default_type: "",
            period_type: SAMPLE_TYPES[0],
            period: 1,
            time_nanos,
            duration_nanos: 0,
            samples: samples.collect(),
            // All of it: who looks at threads may want to know how they wait.
            leaf: |_, _| Leaf::Shown,
            comments,
        }
    }

    fn read_text(&self) -> TextReading {
        let Everybody { records, comments } = everybody(How::ToCount);
        let head = format!("goroutine profile: total {}\n", records.len());
        let mut counts: HashMap<(Stack, Tag), usize> = HashMap::new();
        for record in records {
            let key = (record.stack(), Tag::Activity(record.activity));
            *counts.entry(key).or_default() += 1;
        }
        let lines = comments.iter().map(|comment| format!("# {comment}\n"));
        TextReading {
            head,
            rows: Row::counts(counts),
            leaf: waiting::leaf_of_thread,
            tail: lines.collect(),
        }
    }

    fn read_each(&self) -> Option<Vec<Record>> {
        Some(everybody(How::InFull).records)
    }
}

/// Everybody there is.
struct Everybody {
    records: Vec<Record>,
    /// What is to be said of all of them.
    comments: Vec<String>,
}

/// Reads all records.
fn everybody(how: How) -> Everybody {
    let found = thread::threads(how);
    let records: Vec<Record> = found.threads.into_iter().map(Record::of_thread).collect();
    let flawed = records.iter().filter(|record| !record.is_whole);
    let mut comments = vec![format!(
        "plimsoll: {} threads, {} of them without a whole stack",
        records.len(),
        flawed.count()
    )];
    comments.extend(found.trouble.map(|trouble| format!("plimsoll: {trouble}")));
    Everybody { records, comments }
}
