//! `goroutine`: who is there, and what everybody is doing. Go's name for it, which its tools know.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::activity::Record;
use super::reading::{Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::{Source, waiting};
use crate::label::Labels;
use crate::leak::deadlock::{self, Stuck};
use crate::leak::{self, Leak};
use crate::task::{self, TaskRecord};
use crate::thread::{self, How};

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Tasks that are alike are one record, which is all that a profile needs.
    Alike,
    /// The same, and it is found out how long threads have waited.
    AlikeWithTimes,
    /// Everybody has a record of his own, with all that is known.
    Each,
}

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
        let Everybody { records, comments } = everybody(Which::Alike);
        let samples = records.into_iter().map(|record| {
            let (stack, count) = (record.stack(), record.count as i64);
            Sample::of_count(stack, count, Tag::Activity(record.activity))
        });
        Reading::of_counts(&SAMPLE_TYPES, samples.collect(), comments)
    }

    fn read_text(&self) -> TextReading {
        let Everybody { records, comments } = everybody(Which::Alike);
        let total: usize = records.iter().map(|record| record.count).sum();
        let lines = comments.iter().map(|comment| format!("# {comment}\n"));
        TextReading {
            head: format!("goroutine profile: total {total}\n"),
            rows: rows(&records),
            leaf: waiting::leaf_of_thread,
            tail: lines.collect(),
        }
    }

    fn read_each(&self) -> Option<Vec<Record>> {
        Some(everybody(Which::Each).records)
    }
}

/// The records as rows of text, those that are alike as one.
pub(super) fn rows<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Row> {
    let mut counts: HashMap<(Stack, Tag), usize> = HashMap::new();
    for record in records {
        let key = (record.stack(), Tag::Activity(record.activity.clone()));
        *counts.entry(key).or_default() += record.count;
    }
    Row::counts(counts)
}

/// Everybody there is.
pub(super) struct Everybody {
    pub(super) records: Vec<Record>,
    /// What is to be said of all of them.
    pub(super) comments: Vec<String>,
}

/// Reads all records: of the tasks first, which are of one instant.
pub(super) fn everybody(which: Which) -> Everybody {
    let how = match which {
        Which::Alike => How::ToCount,
        Which::AlikeWithTimes | Which::Each => How::InFull,
    };
    let mut alike: HashMap<Alike, usize> = HashMap::new();
    let mut tasks: Vec<Group> = Vec::new();
    let age = leak::age();
    let stuck_tasks = stuck_tasks();
    task::for_each(|task| {
        let stuck = stuck_tasks(&task);
        let is_old = task.waited().is_some_and(|waited| waited >= age);
        let at = match alike.entry(Alike::of(&task, stuck)) {
            Entry::Occupied(first) if which != Which::Each => *first.get(),
            entry => {
                entry.or_insert(tasks.len());
                tasks.push(Group::of(task, stuck));
                tasks.len() - 1
            }
        };
        tasks[at].count += 1;
        tasks[at].old += usize::from(is_old);
    });
    tasks.sort_by_key(|group| group.first.id());
    let stuck = deadlock::stuck();
    let found = thread::read_all(how);
    let number_of_threads = found.threads.len();
    let threads = found.threads.into_iter().map(|thread| {
        let leak = stuck.get(&thread.id).copied().map(Leak::Deadlock);
        Record::of_thread(thread, leak)
    });
    let mut records: Vec<Record> = threads.collect();
    let flawed = records.iter().filter(|record| !record.is_whole).count();
    let stacks: HashMap<u64, Stack> = records
        .iter()
        .map(|record| (record.id, record.stack()))
        .collect();
    let number_of_tasks: usize = tasks.iter().map(|group| group.count).sum();
    records.extend(tasks.iter().map(|group| {
        let running = group.first.thread();
        let running = running.and_then(|thread| stacks.get(&thread.into()));
        Record {
            count: group.count,
            old: group.old,
            ..Record::of_task(&group.first, running.cloned(), group.stuck)
        }
    }));
    let mut comments = vec![format!(
        "plimsoll: {number_of_threads} threads, {flawed} of them without a whole stack; \
         {number_of_tasks} tasks"
    )];
    comments.extend(found.trouble.map(|trouble| format!("plimsoll: {trouble}")));
    Everybody { records, comments }
}

/// The search for tasks that are stuck: why a task is, if it is one of them.
fn stuck_tasks() -> impl Fn(&TaskRecord) -> Option<Stuck> {
    #[cfg(feature = "tokio")]
    {
        let found = leak::tasks::stuck();
        move |task| {
            let found = found.get(&task.id().0)?;
            let is_same = task.now() == task::State::Waiting && task.polls() == found.polls;
            is_same.then_some(found.stuck)
        }
    }
    #[cfg(not(feature = "tokio"))]
    |_| None
}

/// Tasks that are alike.
struct Group {
    first: TaskRecord,
    stuck: Option<Stuck>,
    count: usize,
    old: usize,
}

impl Group {
    fn of(first: TaskRecord, stuck: Option<Stuck>) -> Self {
        Self {
            first,
            stuck,
            count: 0,
            old: 0,
        }
    }
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
    is_forgotten: bool,
    stuck: Option<Stuck>,
}

impl Alike {
    fn of(task: &TaskRecord, stuck: Option<Stuck>) -> Self {
        Self {
            state: task.now(),
            stacks: task.stacks().collect(),
            labels: task.labels(),
            name: task.name(),
            type_name: task.type_name(),
            thread: task.thread(),
            is_forgotten: task.is_forgotten(),
            stuck,
        }
    }
}
