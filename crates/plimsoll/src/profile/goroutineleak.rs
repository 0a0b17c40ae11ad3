//! `goroutineleak`: who will not go on. Go's name for it, which its tools know.
//!
//! Two numbers for each stack: those of which it is proved, and those of which it is only probable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::activity::{Activity, Now, Record};
use super::goroutine::{Everybody, Which, everybody, rows};
use super::reading::{MOST_VALUES, Reading, Sample, Stack, Tag, TextReading, ValueType};
use super::{Source, waiting};
use crate::contention;
use crate::leak::growth::{Growth, Number, READINGS_NEEDED};
use crate::leak::{self, Leak};
use crate::primitives::Mutex;
use crate::symbol::{self, Detail};
use crate::thread::State;

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

/// How many were proved to be leaked when it was looked at last.
static COUNT: AtomicUsize = AtomicUsize::new(0);

type Place = (Stack, Arc<Activity>);

/// What earlier readings had.
pub(crate) type Earlier = Growth<Place>;

static EARLIER: Mutex<Earlier> = Mutex::new(Growth::new());

/// Keeps others from comparing with earlier readings until the guard is dropped: for a fork, too.
pub(crate) fn lock_earlier() -> MutexGuard<'static, Earlier> {
    EARLIER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Source for GoroutineLeak {
    fn name(&self) -> &'static str {
        "goroutineleak"
    }

    fn description(&self) -> &'static str {
        "Stacks of threads and tracked tasks that will never go on: nobody can wake them, or they wait for one another. \
         Beside them, those that probably will not: those that have waited for leak_age (10 minutes unless it was set) in a \
         place where their number rises. That takes three readings of this profile or more."
    }

    /// As Go does: what was found when it was looked for last.
    fn count(&self) -> usize {
        COUNT.load(Ordering::Relaxed)
    }

    fn read(&self) -> Reading {
        let Everybody { records, comments } = leaked();
        let samples = records.into_iter().map(|record| {
            let count = record.count as i64;
            let mut values = [0; MOST_VALUES];
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

    /// What is only probable comes behind the rest.
    fn read_text(&self) -> TextReading {
        let Everybody { records, comments } = leaked();
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

    /// Everybody, as Go does; who is leaked is marked.
    fn read_each(&self) -> Option<Vec<Record>> {
        let Everybody { records, .. } = everybody(Which::Each);
        note(&records);
        Some(records)
    }
}

fn is_proved(record: &Record) -> bool {
    record.activity.leak.is_some_and(Leak::is_proved)
}

/// Remembers how many of them are leaked.
fn note(records: &[Record]) -> usize {
    let proved = records.iter().filter(|record| is_proved(record));
    let count = proved.map(|record| record.count).sum();
    COUNT.store(count, Ordering::Relaxed);
    count
}

/// Those that are leaked, and those that probably are.
fn leaked() -> Everybody {
    let owners_were_noted = contention::note_owners();
    let Everybody {
        mut records,
        mut comments,
    } = everybody(Which::AlikeWithTimes);
    let count = note(&records);
    let unknown = records.iter().filter(|record| may_be_old(record)).count();
    let old: usize = records.iter().map(|record| record.old).sum();
    let (growing, readings) = growing(&records);
    for record in &mut records {
        let place = (record.stack(), record.activity.clone());
        if let Some(&count) = growing.get(&place) {
            record.count = count;
            Arc::make_mut(&mut record.activity).leak = Some(Leak::Grows);
        }
    }
    let probable: usize = growing.values().sum();
    // Of threads that are alike there is a record each, of which the first has the number.
    let mut counted = HashMap::new();
    records.retain(|record| match record.activity.leak {
        None => false,
        Some(Leak::Forgotten | Leak::Deadlock(_)) => true,
        Some(Leak::Grows) => counted
            .insert((record.stack(), record.activity.clone()), ())
            .is_none(),
    });
    let age = leak::age().as_secs_f64();
    // First, because the rest means little without it.
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
             made, and may have sent elsewhere"
        ));
    }
    if !owners_were_noted {
        comments.push(
            "plimsoll: locks note their owners from this reading on; no deadlock is found by locks that were taken \
             before"
                .to_owned(),
        );
    }
    if unknown > 0 {
        comments.push(format!(
            "plimsoll: of {unknown} threads it could not be found out how long they have waited"
        ));
    }
    Everybody { records, comments }
}

/// How many tasks it stands for, if they are probably deadlocked.
fn count_of_probable_deadlock(record: &Record) -> Option<usize> {
    let is_probable =
        matches!(record.activity.leak, Some(Leak::Deadlock(stuck)) if !stuck.is_proved);
    is_probable.then_some(record.count)
}

/// Whether it waits, but for how long could not be found out this time.
fn may_be_old(record: &Record) -> bool {
    let waits = match record.activity.state {
        Now::Thread(state) => state != State::Running,
        Now::Task(_) | Now::Created => false,
    };
    waits && record.waited.is_none()
}

/// How many have waited for long at places where their number rises, and how many readings there
/// were, this one included.
fn growing(records: &[Record]) -> (HashMap<Place, usize>, u64) {
    let mut counts: HashMap<Place, Number> = HashMap::new();
    let not_proved = records
        .iter()
        .filter(|record| record.activity.leak.is_none());
    for record in not_proved {
        let unknown = usize::from(may_be_old(record));
        if record.old + unknown > 0 {
            let place = (record.stack(), record.activity.clone());
            let number = counts.entry(place).or_default();
            number.at_least += record.old;
            number.at_most += record.old + unknown;
        }
    }
    let mut growing = HashMap::new();
    let mut earlier = lock_earlier();
    earlier.observe(counts, |place, count| {
        growing.insert(place.clone(), count);
    });
    let readings = earlier.readings();
    drop(earlier);
    if growing.is_empty() {
        return (growing, readings);
    }
    let frames = growing.keys().flat_map(|(stack, _)| stack.frames());
    let mut frames: Vec<usize> = frames.copied().collect();
    frames.sort_unstable();
    frames.dedup();
    let symbols = symbol::resolve(&frames, Detail::Full);
    growing
        .retain(|(stack, activity), _| activity.waits_for_others(|| symbols.names(stack.frames())));
    (growing, readings)
}
