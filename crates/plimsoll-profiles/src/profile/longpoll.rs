//! The `longpoll` profile: polls of tasks that kept an executor's thread for long, with its stacks.

use plimsoll_pprof::kinds::{self, ProfileKind};

use super::Source;
use super::reading::{MAX_VALUES, Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::waiting;
use plimsoll_tasks::task::{self, LongPolls};

pub(super) struct LongPoll;

const SAMPLE_TYPES: [ValueType; 2] = [
    ValueType {
        name: "polls",
        unit: "count",
    },
    ValueType {
        name: "delay",
        unit: "nanoseconds",
    },
];

/// Stands in for a stack that was not read.
const UNSEEN: &str = "[not seen while it ran]";

/// Returns the records, the longest delay first.
fn sites() -> Vec<LongPolls> {
    let mut sites = Vec::new();
    task::read_long_polls(|polls| sites.push(polls));
    sites.sort_by_key(|polls| std::cmp::Reverse(polls.delay_ns));
    sites
}

fn stack(polls: &LongPolls) -> Stack {
    match polls.stack {
        [] if polls.overflow => Stack::Unknown("[the table of stacks is full]"),
        [] if polls.unseen => Stack::Unknown(UNSEEN),
        [] => Stack::Unknown("[no stack]"),
        frames => Stack::kept(frames),
    }
}

fn tag(polls: &LongPolls) -> Tag {
    Tag::Task(polls.task, polls.labels)
}

/// Returns the comments on the whole profile.
fn comments(sites: &[LongPolls]) -> Vec<String> {
    let sum = |of: fn(&LongPolls) -> u64| sites.iter().map(of).sum::<u64>();
    let unseen = sum(|site| if site.unseen { site.polls } else { 0 });
    let threshold = match super::long_poll() {
        None => "none are recorded now".to_owned(),
        Some(threshold) => format!("those of {} s or more", threshold.as_secs_f64()),
    };
    vec![format!(
        "plimsoll: {} long polls, {} ns; {unseen} of them were not sampled while they ran; \
         {threshold}",
        sum(|site| site.polls),
        sum(|site| site.delay_ns),
    )]
}

impl Source for LongPoll {
    fn kind(&self) -> ProfileKind {
        kinds::LONGPOLL
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        let mut count = 0;
        task::read_long_polls(|_| count += 1);
        count
    }

    fn read(&self) -> Reading {
        let sites = sites();
        let samples = sites.iter().map(|site| {
            let mut values = [0; MAX_VALUES];
            values[0] = site.polls as i64;
            values[1] = site.delay_ns as i64;
            Sample {
                stack: stack(site),
                values,
                tag: tag(site),
            }
        });
        Reading::of_counts(&SAMPLE_TYPES, samples.collect(), comments(&sites))
    }

    fn read_text(&self) -> TextReading {
        let sites = sites();
        let row = |site: &LongPolls| Row {
            values: format!("{} {}", site.delay_ns, site.polls),
            stack: stack(site),
            tag: tag(site),
        };
        let lines = comments(&sites);
        TextReading {
            head: "--- long polls:\ncycles/second=1000000000\n".into(),
            rows: sites.iter().map(row).collect(),
            leaf: waiting::leaf_of_thread,
            tail: lines.iter().map(|line| format!("# {line}\n")).collect(),
        }
    }
}
