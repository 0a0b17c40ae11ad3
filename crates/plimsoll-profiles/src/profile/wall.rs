//! The wall-clock profile: where threads and tracked tasks spend elapsed time, running or waiting.
//!
//! A thread of Plimsoll looks at irregular intervals, of [`INTERVAL`] on average. Each time, it reads a
//! random part of the program's threads, and a random part of its tasks, as the profile `goroutine`
//! reads all: blocked threads from outside, running ones by one signal. Each one read stands for all
//! that were not, for the time since the last look. So the sum is elapsed time x threads, and elapsed
//! time x tasks. If looking takes long, the interval grows, so that it takes at most 1 / [`REST`] of a
//! processor.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use plimsoll_sys::hash::HashMap;
use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::{clock, random};
use plimsoll_sys::primitives::{AtomicBool, Mutex, Ordering};

use super::activity::Record;
use super::moment::Moment;
use super::reading::{MAX_VALUES, Reading, Sample, Stack, Tag, ValueType};
use plimsoll_core::internal_thread::OwnThread;
use plimsoll_core::stack::StackReader;
use plimsoll_core::{internal_scope, internal_thread, overhead};
use plimsoll_tasks::task;
use plimsoll_threads::thread;

const SAMPLE_TYPES: [ValueType; 2] = [
    ValueType {
        name: "samples",
        unit: "count",
    },
    ValueType {
        name: "time",
        unit: "nanoseconds",
    },
];

/// The mean interval between two looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// An interval is at least this many times the CPU time of the look before it.
const REST: u64 = 200;

/// The number of threads that a look reads, and of task slots.
const THREADS: usize = 8;
const TASKS: usize = 32;

/// The number of looks after which the list of threads is read again.
const LIST_AGAIN: u64 = 20;

/// The number of different samples of a recording. Further ones have no stack.
const MAX_SAMPLES: usize = 1 << 16;

type Samples = HashMap<(Stack, Tag), [f64; 2]>;

/// The state that a recording shares with its thread.
#[derive(Debug)]
struct Shared {
    bell: Bell,
    stopped: AtomicBool,
    samples: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    samples: Samples,
    looks: u64,
    /// The time up to the last look, in nanoseconds.
    covered_ns: u64,
}

/// A wall-clock profile in progress, which ends when this is dropped.
#[derive(Debug)]
pub struct Recording {
    shared: Arc<Shared>,
    /// `None` once it was joined.
    thread: Option<OwnThread>,
}

impl Recording {
    /// Begins a profile.
    ///
    /// # Errors
    /// The system's error, if there are too many threads.
    pub fn begin() -> std::io::Result<Self> {
        let _own = internal_scope::scope();
        let shared = Arc::new(Shared {
            bell: Bell::new()?,
            stopped: AtomicBool::new(false),
            samples: Mutex::new(Looks::default()),
        });
        let of_thread = Arc::clone(&shared);
        let thread = internal_thread::spawn(c"plimsoll-wall", move || watch(&of_thread))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Ends the profile with a last look, and returns its samples.
    pub fn finish(mut self) -> Reading {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        self.read()
    }

    /// Returns the samples up to the last look.
    pub fn read(&self) -> Reading {
        let looks = self.shared.samples.lock();
        looks.unwrap_or_else(PoisonError::into_inner).reading()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Looks {
    fn add(&mut self, records: Vec<(Record, f64)>, elapsed: u64) {
        self.looks += 1;
        self.covered_ns += elapsed;
        for (record, weight) in records {
            let mut key = (record.stack(), Tag::Wall(record.activity));
            if self.samples.len() >= MAX_SAMPLES && !self.samples.contains_key(&key) {
                key.0 = Stack::Unknown("[too many different stacks]");
            }
            let [count, time] = self.samples.entry(key).or_default();
            *count += weight;
            *time += weight * elapsed as f64;
        }
    }

    fn reading(&self) -> Reading {
        let comments = vec![format!(
            "plimsoll: {} looks; each read {THREADS} threads and {TASKS} task slots at most, which stand for all; \
             a thread that polls a task counts beside the task",
            self.looks
        )];
        let samples = self.samples.iter().map(|((stack, tag), [count, time])| {
            let mut values = [0; MAX_VALUES];
            values[0] = count.round() as i64;
            values[1] = time.round() as i64;
            Sample {
                stack: stack.clone(),
                values,
                tag: tag.clone(),
            }
        });
        Reading {
            period_type: SAMPLE_TYPES[1],
            period: INTERVAL.as_nanos() as i64,
            moment: Moment::now().before(self.covered_ns),
            duration_nanos: self.covered_ns as i64,
            ..Reading::of_counts(&SAMPLE_TYPES, samples.collect(), comments)
        }
    }
}

impl Shared {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.ring();
    }
}

fn watch(shared: &Shared) {
    let mut threads = Vec::new();
    let mut names = HashMap::default();
    let mut reader = StackReader::new();
    let mut last = clock::now();
    let mut interval = INTERVAL.as_nanos() as u64;
    for turn in 0.. {
        // Half the interval to one and a half of it, so as not to be in step with the program.
        let wait = interval / 2 + random::seed() % interval.max(1);
        if internal_thread::wait(&shared.bell, Some(Duration::from_nanos(wait))).is_err() {
            return;
        }
        let _time = overhead::measure();
        let began = clock::thread_cpu();
        if turn % LIST_AGAIN == 0 {
            threads = thread::list().map_or_else(Vec::new, |threads| threads.program);
            names = HashMap::default();
        }
        let mut records = Vec::new();
        read_threads(&threads, &mut names, &mut reader, &mut records);
        read_tasks(&mut records);
        let now = clock::now();
        let elapsed = now.saturating_sub(last);
        last = now;
        let mut looks = shared
            .samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        looks.add(records, elapsed);
        drop(looks);
        if shared.stopped.load(Ordering::Acquire) {
            return;
        }
        let took = clock::thread_cpu().saturating_sub(began);
        interval = (INTERVAL.as_nanos() as u64).max(took * REST);
    }
}

/// Reads a random part of the threads, each with the number of threads for which it stands.
fn read_threads(
    threads: &[i32],
    names: &mut HashMap<i32, String>,
    reader: &mut StackReader,
    records: &mut Vec<(Record, f64)>,
) {
    let count = threads.len().min(THREADS);
    let weight = threads.len() as f64 / count.max(1) as f64;
    // Each thread has the same probability: an arithmetic sequence with a random start.
    let first = random::seed() as usize;
    let chosen = (0..count).map(|at| threads[(first + at * threads.len() / count) % threads.len()]);
    for mut thread in thread::some(chosen.collect(), reader) {
        let name = names
            .entry(thread.id)
            .or_insert_with(|| thread::name_of(thread.id));
        thread.name.clone_from(name);
        records.push((Record::of_thread(thread, None), weight));
    }
}

/// Reads a random part of the tasks, each with the number of tasks for which it stands.
fn read_tasks(records: &mut Vec<(Record, f64)>) {
    task::read_some(TASKS, random::seed(), |task, weight| {
        records.push((Record::of_task(task, None, None), weight));
    });
}
