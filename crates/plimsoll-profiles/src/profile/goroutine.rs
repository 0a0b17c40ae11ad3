//! The `goroutine` profile: all threads and tasks, and what each is doing. The name is Go's, which
//! Go's tools recognize.

use std::collections::hash_map::Entry;

use plimsoll_pprof::kinds::{self, ProfileKind};

use plimsoll_sys::hash::HashMap;

use super::activity::Record;
use super::reading::{Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::{Source, waiting};
use plimsoll_core::label::Labels;
use plimsoll_tasks::task::{self, TaskRecord};
use plimsoll_threads::thread::{self, CaptureDetail};
use plimsoll_waits::leak::deadlock::{self, Stuck};
use plimsoll_waits::leak::lock_graph::{Held, LockGraph};
use plimsoll_waits::leak::{self, Leak};

/// The grouping of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Tasks that are alike share a record, which suffices for a profile.
    Alike,
    /// The same, with the waiting times of threads.
    AlikeWithTimes,
    /// Each thread and task has a record with all its known properties.
    Each,
}

pub(super) struct Goroutine;

const SAMPLE_TYPES: [ValueType; 1] = [ValueType {
    name: "goroutine",
    unit: "count",
}];

impl Source for Goroutine {
    fn kind(&self) -> ProfileKind {
        kinds::GOROUTINE
    }

    fn count(&self) -> usize {
        thread::count() + task::count()
    }

    fn read(&self) -> Reading {
        let AllActivity { records, comments } = all_activity(Which::Alike);
        let samples = records.into_iter().map(|record| {
            let (stack, count) = (record.stack(), record.count as i64);
            Sample::of_count(stack, count, Tag::Activity(record.activity))
        });
        Reading::of_counts(&SAMPLE_TYPES, samples.collect(), comments)
    }

    fn read_text(&self) -> TextReading {
        let AllActivity { records, comments } = all_activity(Which::Alike);
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
        Some(each_activity())
    }
}

/// Returns a record for each thread and task.
pub(crate) fn each_activity() -> Vec<Record> {
    all_activity(Which::Each).records
}

/// The same, with what they wait for.
pub fn each_activity_and_locks() -> (Vec<Record>, Vec<Held>) {
    let (all, waits) = all_activity_and_waits(Which::Each);
    (all.records, waits.objects())
}

/// Returns the records as rows of text, one for all that are alike.
pub fn rows<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Row> {
    let mut counts: HashMap<(Stack, Tag), usize> = HashMap::default();
    for record in records {
        let key = (record.stack(), Tag::Activity(record.activity.clone()));
        *counts.entry(key).or_default() += record.count;
    }
    Row::counts(counts)
}

/// The records of all threads and tasks.
pub(super) struct AllActivity {
    pub(super) records: Vec<Record>,
    /// Comments on the whole profile.
    pub comments: Vec<String>,
}

/// Reads all records: first the tasks, at one instant, then the threads.
pub(super) fn all_activity(which: Which) -> AllActivity {
    all_activity_and_waits(which).0
}

fn all_activity_and_waits(which: Which) -> (AllActivity, AllWaits) {
    let how = match which {
        Which::Alike => CaptureDetail::ToCount,
        Which::AlikeWithTimes | Which::Each => CaptureDetail::InFull,
    };
    let mut alike: HashMap<Alike, usize> = HashMap::default();
    let mut tasks: Vec<Group> = Vec::new();
    let age = leak::age();
    let mut waits = AllWaits::of_tasks();
    let stuck_tasks = waits.stuck_tasks();
    task::for_each(|task| {
        let stuck = stuck_tasks(&task);
        let is_old = task.waited().is_some_and(|waited| waited >= age);
        let at = match alike.entry(Alike::from_task(&task, stuck)) {
            Entry::Occupied(first) if which != Which::Each => *first.get(),
            entry => {
                entry.or_insert(tasks.len());
                tasks.push(Group::new(task, stuck));
                tasks.len() - 1
            }
        };
        tasks[at].count += 1;
        tasks[at].old += usize::from(is_old);
    });
    tasks.sort_by_key(|group| group.first.id());
    waits.threads = deadlock::Waits::read();
    let stuck = waits.threads.stuck();
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
        "plimsoll: {number_of_threads} threads, {flawed} of them without a complete stack; \
         {number_of_tasks} tasks"
    )];
    comments.extend(found.trouble.map(|trouble| format!("plimsoll: {trouble}")));
    (AllActivity { records, comments }, waits)
}

/// What threads and tasks wait for.
#[derive(Default)]
struct AllWaits {
    tasks: leak::tasks::TaskWaits,
    threads: deadlock::Waits,
}

impl AllWaits {
    /// Reads the waits of tasks.
    fn of_tasks() -> Self {
        Self {
            tasks: leak::tasks::TaskWaits::read(),
            ..Self::default()
        }
    }

    /// Searches for stuck tasks. The returned function reports why a task is stuck, if it is.
    fn stuck_tasks(&self) -> impl Fn(&TaskRecord) -> Option<Stuck> + use<> {
        let found = self.tasks.stuck();
        move |task| {
            let found = found.get(&task.id().0)?;
            let is_same = task.now() == task::State::Waiting && task.polls() == found.polls;
            is_same.then_some(found.stuck)
        }
    }

    fn objects(&self) -> Vec<Held> {
        let mut graph = LockGraph::default();
        graph.add_threads(&self.threads);
        graph.add_tasks(&self.tasks);
        graph.objects()
    }
}

/// Tasks that are counted together.
struct Group {
    first: TaskRecord,
    stuck: Option<Stuck>,
    count: usize,
    old: usize,
}

impl Group {
    fn new(first: TaskRecord, stuck: Option<Stuck>) -> Self {
        Self {
            first,
            stuck,
            count: 0,
            old: 0,
        }
    }
}

/// The common properties of tasks that are counted together.
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
    fn from_task(task: &TaskRecord, stuck: Option<Stuck>) -> Self {
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
