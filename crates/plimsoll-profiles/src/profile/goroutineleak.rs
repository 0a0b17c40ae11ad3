//! The `goroutineleak` profile: threads and tasks that will never continue. The name is Go's, which
//! Go's tools recognize.
//!
//! Each stack has two values: the number of proved leaks, and the number of probable ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_leaves::leaves::visible;
use plimsoll_pprof::kinds::{self, ProfileKind};
use plimsoll_symbolize::{Detail, Symbols};
use plimsoll_sys::hash::{HashMap, HashSet};
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

use super::activity::{Activity, Now, Record};
use super::goroutine::{AllActivity, Which, all_activity, rows};
use super::reading::{MAX_VALUES, Reading, Sample, Stack, Tag, TextReading, ValueType};
use super::{Source, waiting};
use crate::symbol;
use plimsoll_core::fork::Order;
use plimsoll_tasks::recording;
use plimsoll_threads::thread::State;
use plimsoll_waits::leak::growth::{Growth, Number, READINGS_NEEDED};
use plimsoll_waits::leak::{self, Leak};

pub(super) struct GoroutineLeak;

const SAMPLE_TYPES: [ValueType; 2] = [
    ValueType {
        name: "goroutineleak",
        unit: "count",
    },
    ValueType {
        name: "probable",
        unit: "count",
    },
];

/// The number of proved leaks in the last reading.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A place where threads or tasks wait: return addresses, and the kind of the wait.
type Place = (Stack, Arc<Activity>);

/// The counts of earlier readings, by place.
pub(crate) type Earlier = Growth<Place>;

static EARLIER: ForkLock<Earlier> = ForkLock::new(Order::EarlierLeaks.rank(), Growth::new());

/// Blocks comparisons with earlier readings until the guard is dropped.
fn lock_earlier() -> ForkGuard<Earlier> {
    EARLIER.lock()
}

impl Source for GoroutineLeak {
    fn kind(&self) -> ProfileKind {
        kinds::GOROUTINELEAK
    }

    /// Returns the number found by the last reading, as Go does.
    fn count(&self) -> usize {
        COUNT.load(Ordering::Relaxed)
    }

    fn read(&self) -> Reading {
        let AllActivity { records, comments } = leaked();
        let samples = records.into_iter().map(|record| {
            let count = record.count as i64;
            let mut values = [0; MAX_VALUES];
            values[usize::from(!is_proved(&record))] = count;
            Sample {
                stack: record.stack(),
                values,
                tag: Tag::Activity(record.activity),
            }
        });
        let samples = samples.collect();
        Reading {
            default_type: SAMPLE_TYPES[0].name,
            ..Reading::of_counts(&SAMPLE_TYPES, samples, comments)
        }
    }

    /// Reads the rows, the probable leaks behind the proved ones.
    fn read_text(&self) -> TextReading {
        let AllActivity { records, comments } = leaked();
        let lines = comments.iter().map(|comment| format!("# {comment}\n"));
        let lines: String = lines.collect();
        let (proved, probable): (Vec<_>, Vec<_>) =
            records.iter().partition(|&record| is_proved(record));
        let total: usize = proved.iter().map(|record| record.count).sum();
        let mut all = rows(proved);
        all.extend(rows(probable));
        TextReading {
            head: format!("goroutineleak profile: total {total}\n{lines}"),
            rows: all,
            leaf: waiting::leaf_of_thread,
            tail: String::new(),
        }
    }

    /// Returns all threads and tasks, as Go does, with the leaked ones marked.
    fn read_each(&self) -> Option<Vec<Record>> {
        let AllActivity { records, .. } = all_activity(Which::Each);
        note(&records);
        Some(records)
    }
}

fn is_proved(record: &Record) -> bool {
    record.activity.leak.is_some_and(Leak::is_proved)
}

/// Stores and returns the number of proved leaks.
fn note(records: &[Record]) -> usize {
    let proved = records.iter().filter(|record| is_proved(record));
    let count = proved.map(|record| record.count).sum();
    COUNT.store(count, Ordering::Relaxed);
    count
}

/// Returns the threads and tasks that are leaked, and those that probably are.
fn leaked() -> AllActivity {
    let owners_were_noted = recording::note_owners();
    let AllActivity {
        mut records,
        mut comments,
    } = all_activity(Which::AlikeWithTimes);
    let count = note(&records);
    let unknown = records.iter().filter(|record| may_be_old(record)).count();
    let old: usize = records.iter().map(|record| record.old).sum();
    let (growing, readings) = growing(&records);
    for (&first, &count) in &growing {
        let record = &mut records[first];
        record.count = count;
        Arc::make_mut(&mut record.activity).leak = Some(Leak::Grows);
    }
    let probable: usize = growing.values().sum();
    records.retain(|record| record.activity.leak.is_some());
    let age = leak::age().as_secs_f64();
    // First, because it qualifies all other lines.
    comments.insert(
        0,
        format!(
            "plimsoll: {count} proved to be leaked; {probable} probable; {old} threads and tasks have waited for \
             {age} s (leak_age) or longer; readings of this profile so far: {readings}, needed for a probable leak: \
             {READINGS_NEEDED} or more, in which the number at one place rises {} times and does not fall",
            READINGS_NEEDED - 1
        ),
    );
    let deadlocked: usize = records.iter().filter_map(count_of_probable_deadlock).sum();
    if deadlocked > 0 {
        comments.push(format!(
            "plimsoll: {deadlocked} tasks are probably deadlocked: each waits only for locks whose guards such tasks \
             made, or for {age} s (leak_age) for oneshot messages whose senders such tasks made; a guard or a sender may \
             have been moved to another task"
        ));
    }
    if !owners_were_noted {
        comments.push(
            "plimsoll: locks record their owners from this reading on; deadlocks on locks that \
             were taken before are not found"
                .to_owned(),
        );
    }
    if unknown > 0 {
        comments.push(format!(
            "plimsoll: the waiting time of {unknown} threads is unknown"
        ));
    }
    AllActivity { records, comments }
}

/// Returns how many tasks the record stands for, if they are probably deadlocked.
fn count_of_probable_deadlock(record: &Record) -> Option<usize> {
    let is_probable =
        matches!(record.activity.leak, Some(Leak::Deadlock(stuck)) if !stuck.is_proved);
    is_probable.then_some(record.count)
}

/// Reports whether the thread waits, but the length of its wait could not be read.
fn may_be_old(record: &Record) -> bool {
    let waits = match record.activity.state {
        Now::Thread(state) => state != State::Running,
        Now::Task(_) | Now::Created => false,
    };
    waits && record.waited.is_none()
}

/// Returns the places where the number of old waiters rises: the first record at each, and the
/// number. Also returns the number of readings so far, this one included.
fn growing(records: &[Record]) -> (HashMap<usize, usize>, u64) {
    let may_leak = |record: &Record| record.old + usize::from(may_be_old(record)) > 0;
    let candidates: Vec<usize> = (0..records.len())
        .filter(|&at| records[at].activity.leak.is_none() && may_leak(&records[at]))
        .collect();
    let names = symbols(records, candidates.iter(), Detail::Names);
    let mut counts: HashMap<Place, Number> = HashMap::default();
    let mut first: HashMap<Place, usize> = HashMap::default();
    for at in candidates {
        let record = &records[at];
        let place = place(record, &names);
        first.entry(place.clone()).or_insert(at);
        let number = counts.entry(place).or_default();
        number.at_least += record.old;
        number.at_most += record.old + usize::from(may_be_old(record));
    }
    let mut growing = HashMap::default();
    let mut earlier = lock_earlier();
    earlier.observe(counts, |place, count| {
        growing.insert(first[place], count);
    });
    let readings = earlier.readings();
    drop(earlier);
    if growing.is_empty() {
        return (growing, readings);
    }
    let symbols = symbols(records, growing.keys(), Detail::Full);
    growing.retain(|&at, _| {
        let stack = records[at].stack();
        let activity = &records[at].activity;
        activity.waits_for_others(|| symbols.names(stack.frames()))
    });
    (growing, readings)
}

/// Resolves the stacks of some records.
fn symbols<'a>(
    records: &[Record],
    some: impl Iterator<Item = &'a usize>,
    detail: Detail,
) -> Symbols {
    let stacks = some.map(|&at| records[at].stack());
    let frames: HashSet<usize> = stacks.flat_map(|stack| stack.frames().to_vec()).collect();
    let frames: Vec<usize> = frames.into_iter().collect();
    symbol::resolve(&frames, detail)
}

/// Returns the place of a wait: the visible part of its stack. The hidden functions below differ
/// between equal waits. A hook has several call sites, and a wait that began before hooks recorded
/// waits is below none of them.
fn place(record: &Record, symbols: &Symbols) -> Place {
    let stack = match record.stack() {
        Stack::Unknown(reason) => Stack::Unknown(reason),
        stack => {
            let frames = stack.frames();
            let (hidden, _) = visible(frames, waiting::leaf_of_thread, symbols);
            Stack::owned(frames[hidden..].into())
        }
    };
    (stack, record.activity.clone())
}
