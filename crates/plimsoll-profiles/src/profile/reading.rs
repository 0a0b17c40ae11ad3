//! The content of a profile before function names are resolved and a format is chosen.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use plimsoll_leaves::leaves::LeafRule;

use plimsoll_sys::hash::HashMap;

use super::activity::Activity;
use super::moment::Moment;
use super::waiting;
use plimsoll_core::label::Labels;
use plimsoll_core::stack::Record;
use plimsoll_waits::contention::WaitKind;

/// The name and unit of a value of a profile: pprof's `ValueType`.
///
/// ```
/// let block = plimsoll::profile::lookup("block").expect("built in").snapshot();
/// let types = block.value_types().iter().map(|of| (of.name, of.unit));
/// assert!(types.eq([("contentions", "count"), ("delay", "nanoseconds")]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueType {
    /// The name, such as `inuse_space` or `delay`.
    pub name: &'static str,
    /// The unit: `count`, `bytes` or `nanoseconds`.
    pub unit: &'static str,
}

/// Bytes: the period of profiles that sample allocations.
pub const SPACE: ValueType = ValueType {
    name: "space",
    unit: "bytes",
};

/// Maximum number of values of a sample.
pub const MAX_VALUES: usize = 6;

/// A profile to be written in the binary format.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The types of the values, at most [`MAX_VALUES`].
    pub sample_types: &'static [ValueType],
    /// The name of the type that viewers show first; empty for the last type.
    pub default_type: &'static str,
    /// The type of the sampling period.
    pub period_type: ValueType,
    /// The sampling period; 0 omits it.
    pub period: i64,
    /// The time of the reading.
    pub moment: Moment,
    /// The time that the reading covers, in nanoseconds; 0 for everything since the process began.
    pub duration_nanos: i64,
    /// The stacks with their values.
    pub samples: Vec<Sample>,
    /// Decides which functions are hidden at the leaf.
    pub leaf: LeafRule,
    /// Lines for people who read the profile.
    pub comments: Vec<String>,
    /// The exact total that the samples approximate, if a difference of two readings shows it.
    pub total: Option<Total>,
}

/// An exact total, with the comments that contrast it with samples.
#[derive(Clone, Copy, Debug)]
pub struct Total {
    /// The total.
    pub exact: u64,
    /// Returns the comments for these samples and this total.
    pub comments: fn(&[Sample], u64) -> Vec<String>,
}

impl Reading {
    /// Returns a profile of the current state, in which each sample counts in the first type only.
    /// Every stack is shown in full up to Plimsoll's hooks, because readers of a thread list may need the wait
    /// functions.
    pub(crate) fn of_counts(
        sample_types: &'static [ValueType],
        samples: Vec<Sample>,
        comments: Vec<String>,
    ) -> Self {
        Self {
            sample_types,
            default_type: "",
            period_type: sample_types[0],
            period: 1,
            moment: Moment::now(),
            duration_nanos: 0,
            samples,
            leaf: waiting::leaf_of_hook,
            comments,
            total: None,
        }
    }
}

/// A stack with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The stack.
    pub stack: Stack,
    /// One value for each sample type; the rest are 0.
    pub values: [i64; MAX_VALUES],
    /// What distinguishes it from others with the same stack.
    pub tag: Tag,
}

impl Sample {
    /// Returns a sample with one value.
    pub(crate) fn of_count(stack: Stack, count: i64, tag: Tag) -> Self {
        let mut values = [0; MAX_VALUES];
        values[0] = count;
        Self { stack, values, tag }
    }
}

/// The labels of a sample: those of the program, and those by which the profile divides samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Only the program's own labels.
    Labels(Labels),
    /// Objects of this many bytes each.
    Bytes(i64, Labels),
    /// Objects whose lifetime was in the decade that begins at this many nanoseconds.
    Lifetime(i64, Labels),
    /// Waits of a kind.
    Wait(WaitKind, Labels),
    /// Polls of tasks of this name.
    Task(&'static str, Labels),
    /// Work in polls of a task.
    Polled(Arc<PolledTask>),
    /// Threads or tasks with the same activity.
    Activity(Arc<Activity>),
    /// Time of threads or tasks with the same activity.
    Wall(Arc<Activity>),
}

/// What a sample shows of the task that was polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolledTask {
    /// The name of the task, or else the type of its future.
    pub name: &'static str,
    /// The place where the task was created: file, line and column.
    pub spawned: String,
    /// The labels at the sample.
    pub labels: Labels,
}

/// Return addresses, leaf first.
#[derive(Clone, Debug)]
pub enum Frames {
    /// Frames in memory that is never freed.
    Kept(&'static [usize]),
    /// Frames of this reading alone.
    Owned(Arc<[usize]>),
}

impl Deref for Frames {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match self {
            Self::Kept(frames) => frames,
            Self::Owned(frames) => frames,
        }
    }
}

impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Frames {}

impl Hash for Frames {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

/// The stack of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stack {
    /// The frames.
    Frames(Frames),
    /// Categories, outermost first, that stand for the callers of all frames. The frames may be
    /// missing.
    Categorized(Arc<[Cow<'static, str>]>, Frames),
    /// An unknown stack, with the reason.
    Unknown(&'static str),
}

const TABLE_FULL: &str = "[the table of stacks is full]";
const NO_STACK: &str = "[no stack]";

impl Stack {
    pub(crate) fn from_record(record: &Record) -> Self {
        Self::of_bucket(record.stack, record.overflow)
    }

    /// Returns the stack of a bucket. `overflow` states that the table was full.
    pub fn of_bucket(stack: &'static [usize], overflow: bool) -> Self {
        match stack {
            [] if overflow => Self::Unknown(TABLE_FULL),
            [] => Self::Unknown(NO_STACK),
            frames => Self::Frames(Frames::Kept(frames)),
        }
    }

    /// Returns the stack with these frames, which are never freed.
    pub fn kept(frames: &'static [usize]) -> Self {
        Self::Frames(Frames::Kept(frames))
    }

    pub(crate) fn owned(frames: Arc<[usize]>) -> Self {
        Self::Frames(Frames::Owned(frames))
    }

    /// Returns the return addresses, leaf first; none for an unknown stack.
    pub fn frames(&self) -> &[usize] {
        match self {
            Self::Frames(frames) | Self::Categorized(_, frames) => frames,
            Self::Unknown(_) => &[],
        }
    }

    /// Returns the categories of the sample, outermost first.
    pub fn categories(&self) -> &[Cow<'static, str>] {
        match self {
            Self::Categorized(categories, _) => categories,
            Self::Frames(_) | Self::Unknown(_) => &[],
        }
    }
}

/// A profile to be written in the text format.
#[derive(Clone, Debug)]
pub struct TextReading {
    /// The text before the rows, with its line ends.
    pub head: String,
    /// The rows, in the order of the output.
    pub rows: Vec<Row>,
    /// Decides which functions are hidden at the leaf.
    pub leaf: LeafRule,
    /// The text after the rows, with its line ends.
    pub tail: String,
}

/// A line of the text format.
#[derive(Clone, Debug)]
pub struct Row {
    /// The text before the addresses.
    pub values: String,
    /// The stack.
    pub stack: Stack,
    /// What distinguishes it from others with the same stack.
    pub tag: Tag,
}

impl Row {
    /// Returns a row for each counted stack and tag, the largest count first.
    pub(crate) fn counts(counts: HashMap<(Stack, Tag), usize>) -> Vec<Self> {
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|((stack, _), count), ((other, _), of_other)| {
            let frames = stack.frames().cmp(other.frames());
            of_other.cmp(count).then(frames)
        });
        let row = |((stack, tag), count): ((Stack, Tag), usize)| Self {
            values: count.to_string(),
            stack,
            tag,
        };
        counts.into_iter().map(row).collect()
    }
}
