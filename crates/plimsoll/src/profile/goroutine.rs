//! `goroutine`: who is there, and what everybody is doing. Go's name for it, which its tools know.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::activity::Record;
use super::reading::{
    Leaf, MOST_VALUES, Reading, Row, Sample, Stack, Tag, TextReading, ValueType, now_nanos,
};
use super::{Source, waiting};
use crate::label::Labels;
use crate::task::{self, TaskRecord};
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
        "Stacks of all threads and tracked tasks. Use debug=2 for one of each, with all that is known of it."
    }

    fn count(&self) -> usize {
        thread::count() + task::count()
    }

    fn read(&self) -> Reading {
        let time_nanos = now_nanos();
        let Everybody { records, comments } = everybody(How::ToCount);
        let samples = records.into_iter().map(|record| {
            let mut values = [0; MOST_VALUES];
            values[0] = record.count as i64;
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
        let total: usize = records.iter().map(|record| record.count).sum();
        let head = format!("goroutine profile: total {total}\n");
        let mut counts: HashMap<(Stack, Tag), usize> = HashMap::new();
        for record in records {
            let key = (record.stack(), Tag::Activity(record.activity));
            *counts.entry(key).or_default() += record.count;
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

/// Reads all records: of the tasks first, which are of one instant. Of tasks that are alike there
/// is one record, unless they are wanted in full.
fn everybody(how: How) -> Everybody {
    let mut alike: HashMap<Alike, usize> = HashMap::new();
    let mut tasks: Vec<(TaskRecord, usize)> = Vec::new();
    task::for_each(|task| match alike.entry(Alike::of(&task)) {
        Entry::Occupied(first) if how == How::ToCount => tasks[*first.get()].1 += 1,
        Entry::Occupied(_) => tasks.push((task, 1)),
        Entry::Vacant(none) => {
            none.insert(tasks.len());
            tasks.push((task, 1));
        }
    });
    tasks.sort_by_key(|(task, _)| task.id());
    let found = thread::threads(how);
    let number_of_threads = found.threads.len();
    let mut records: Vec<Record> = found.threads.into_iter().map(Record::of_thread).collect();
    let flawed = records.iter().filter(|record| !record.is_whole).count();
    let stacks: HashMap<u64, Stack> = records
        .iter()
        .map(|record| (record.id, record.stack()))
        .collect();
    let number_of_tasks: usize = tasks.iter().map(|(_, count)| count).sum();
    records.extend(tasks.iter().map(|(task, count)| {
        let running = task.thread().and_then(|thread| stacks.get(&thread.into()));
        Record::of_task(task, running.cloned(), *count)
    }));
    let mut comments = vec![format!(
        "plimsoll: {number_of_threads} threads, {flawed} of them without a whole stack; \
         {number_of_tasks} tasks"
    )];
    comments.extend(found.trouble.map(|trouble| format!("plimsoll: {trouble}")));
    Everybody { records, comments }
}

/// What is the same of tasks that are counted together.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    state: task::State,
    stacks: Vec<&'static [usize]>,
    labels: Labels,
    name: Option<&'static str>,
    type_name: &'static str,
    thread: Option<u32>,
}

impl Alike {
    fn of(task: &TaskRecord) -> Self {
        Self {
            state: task.now(),
            stacks: task.stacks().collect(),
            labels: task.labels(),
            name: task.name(),
            type_name: task.type_name(),
            thread: task.thread(),
        }
    }
}
