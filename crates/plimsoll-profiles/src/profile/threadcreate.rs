//! The `threadcreate` profile: where the living threads were created.

use std::sync::Arc;

use plimsoll_pprof::kinds::{self, ProfileKind};

use plimsoll_sys::hash::HashMap;

use super::activity::{Activity, Now};
use super::reading::{Frames, Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::{Source, waiting};
use plimsoll_threads::thread;

pub(super) struct ThreadCreate;

const SAMPLE_TYPES: [ValueType; 1] = [ValueType {
    name: "threadcreate",
    unit: "count",
}];

impl Source for ThreadCreate {
    fn kind(&self) -> ProfileKind {
        kinds::THREADCREATE
    }

    fn count(&self) -> usize {
        thread::count()
    }

    fn read(&self) -> Reading {
        reading(thread::creations())
    }

    fn read_text(&self) -> TextReading {
        let creations: Vec<(Stack, Tag)> = samples(thread::creations()).collect();
        let head = format!("threadcreate profile: total {}\n", creations.len());
        let mut counts: HashMap<(Stack, Tag), usize> = HashMap::default();
        for creation in creations {
            *counts.entry(creation).or_default() += 1;
        }
        TextReading {
            head,
            rows: Row::counts(counts),
            leaf: waiting::leaf_of_creation,
            tail: String::new(),
        }
    }
}

/// Returns the profile without the process's first thread.
pub(super) fn read_without_first() -> Reading {
    let mut creations = thread::creations();
    creations.retain(|thread| !thread.is_first);
    reading(creations)
}

fn reading(creations: Vec<thread::Creation>) -> Reading {
    let samples = samples(creations).map(|(stack, tag)| Sample::of_count(stack, 1, tag));
    Reading::of_counts(&SAMPLE_TYPES, samples.collect(), Vec::new())
}

/// Returns the stack of each thread's creation, and the thread's name.
fn samples(creations: Vec<thread::Creation>) -> impl Iterator<Item = (Stack, Tag)> {
    let creation = |thread: thread::Creation| {
        let stack = match thread.creator {
            Some(creator) if !creator.frames.is_empty() => {
                Stack::Frames(Frames::Kept(creator.frames))
            }
            Some(_) => Stack::Unknown("[no stack]"),
            None => Stack::Unknown("[unknown creator]"),
        };
        let activity = Activity {
            state: Now::Created,
            name: thread.name,
            labels: Vec::new(),
            leak: None,
        };
        (stack, Tag::Activity(Arc::new(activity)))
    };
    creations.into_iter().map(creation)
}
