//! A profile as it was read, before it has names or a format.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::activity::Activity;
use crate::contention::WaitKind;
use crate::label::Labels;
use crate::stack::Record;

/// What a value of a profile counts: pprof's `ValueType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueType {
    /// Such as `inuse_space` or `delay`.
    pub name: &'static str,
    /// `count`, `bytes` or `nanoseconds`.
    pub unit: &'static str,
}

/// The most values that a sample has.
pub(crate) const MOST_VALUES: usize = 6;

/// A profile for the binary format.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// At most [`MOST_VALUES`].
    pub(crate) sample_types: &'static [ValueType],
    /// The name of the type that viewers show first; empty for the last.
    pub(crate) default_type: &'static str,
    pub(crate) period_type: ValueType,
    /// 0 to leave it out.
    pub(crate) period: i64,
    /// When the reading was taken, in nanoseconds since 1970.
    pub(crate) time_nanos: i64,
    /// How long it covers, in nanoseconds; 0 for everything since the process began.
    pub(crate) duration_nanos: i64,
    pub(crate) samples: Vec<Sample>,
    /// Tells what is not shown at the leaf.
    pub(crate) leaf: LeafRule,
    /// Lines for whoever looks at the profile.
    pub(crate) comments: Vec<String>,
}

impl Reading {
    /// Of what there is now, each sample being so many of the first type. All of its stacks is
    /// shown: who looks at threads may want to know how they wait.
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
            time_nanos: now_nanos(),
            duration_nanos: 0,
            samples,
            leaf: |_, _| Leaf::Shown,
            comments,
        }
    }
}

/// One stack with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) stack: Stack,
    /// As many as there are sample types.
    pub(crate) values: [i64; MOST_VALUES],
    pub(crate) tag: Tag,
}

impl Sample {
    /// A stack with one value.
    pub(crate) fn of_count(stack: Stack, count: i64, tag: Tag) -> Self {
        let mut values = [0; MOST_VALUES];
        values[0] = count;
        Self { stack, values, tag }
    }
}

/// What a sample is besides its stack: the labels it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tag {
    /// Nothing but the program's own labels.
    Labels(Labels),
    /// Objects of so many bytes.
    Bytes(i64, Labels),
    /// Objects that lived for so many nanoseconds or more, of a decade.
    Lifetime(i64, Labels),
    /// Waits of a kind.
    Wait(WaitKind, Labels),
    /// Polls of tasks of that name.
    Task(&'static str, Labels),
    /// Threads or tasks that do the same.
    Activity(Arc<Activity>),
}

/// Return addresses, leaf first.
#[derive(Clone, Debug)]
pub(crate) enum Frames {
    /// They stay where they are for good.
    Kept(&'static [usize]),
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

/// Where something happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stack {
    Frames(Frames),
    /// Not known, with the reason.
    Unknown(&'static str),
}

const TABLE_FULL: &str = "[the table of stacks is full]";
const NO_STACK: &str = "[no stack]";

impl Stack {
    pub(crate) fn of(record: &Record) -> Self {
        match record.stack {
            [] if record.overflow => Self::Unknown(TABLE_FULL),
            [] => Self::Unknown(NO_STACK),
            frames => Self::Frames(Frames::Kept(frames)),
        }
    }

    /// That of another process, as [`Stack::of`].
    #[cfg(feature = "offline")]
    pub(crate) fn of_other(frames: &Arc<[usize]>, overflow: bool) -> Self {
        match **frames {
            [] if overflow => Self::Unknown(TABLE_FULL),
            [] => Self::Unknown(NO_STACK),
            _ => Self::owned(Arc::clone(frames)),
        }
    }

    pub(crate) fn kept(frames: &'static [usize]) -> Self {
        Self::Frames(Frames::Kept(frames))
    }

    pub(crate) fn owned(frames: Arc<[usize]>) -> Self {
        Self::Frames(Frames::Owned(frames))
    }

    pub(crate) fn frames(&self) -> &[usize] {
        match self {
            Self::Frames(frames) => frames,
            Self::Unknown(_) => &[],
        }
    }
}

/// A profile for the text format.
#[derive(Clone, Debug)]
pub(crate) struct TextReading {
    /// What comes first, with its line ends.
    pub(crate) head: String,
    /// In the order in which they are printed.
    pub(crate) rows: Vec<Row>,
    /// As in a [`Reading`].
    pub(crate) leaf: LeafRule,
    /// What comes last, with its line ends.
    pub(crate) tail: String,
}

/// A line of the text format.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What stands before the addresses.
    pub(crate) values: String,
    pub(crate) stack: Stack,
    pub(crate) tag: Tag,
}

impl Row {
    /// Rows for what was counted, the largest first.
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

/// Tells from a function's name and file what it is at the leaf of a stack.
pub(crate) type LeafRule = fn(&str, &str) -> Leaf;

/// What a frame at the leaf of a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// Part of how the event came about: not shown.
    Hidden,
    /// Hidden, with all functions that it calls: `__rust_alloc` calls nothing but an allocator,
    /// whatever the names in that are.
    Entry,
    /// May be part of that, if a hidden frame comes after it: `Option::map` between two functions
    /// of the allocator.
    Glue,
    /// As [`Glue`](Self::Glue), and hidden where it calls a hidden function, too:
    /// `Iterator::collect`.
    Library,
    /// Shown, unless an entry point calls it.
    Candidate,
    /// What the stack is shown from.
    Shown,
}

/// How many functions below an entry point may have names that no rule knows. Each stack is searched
/// so far, so more would cost time.
const MAX_BELOW_ENTRY: usize = 8;

/// Returns how many of the innermost functions of a stack `leaf` hides: their names and files, from
/// the leaf, an empty name where it is not known. A stack of hidden functions only is shown whole:
/// 0.
pub(crate) fn hidden<'a>(
    leaf: LeafRule,
    functions: impl Iterator<Item = (&'a str, &'a str)>,
) -> usize {
    let (mut hidden, mut shown) = (0, 0);
    for (at, (name, file)) in functions.enumerate() {
        match leaf(name, file) {
            Leaf::Hidden if shown == 0 => hidden = at + 1,
            Leaf::Library if hidden == at && at > 0 => hidden = at + 1,
            Leaf::Entry => (hidden, shown) = (at + 1, 0),
            Leaf::Candidate if shown < MAX_BELOW_ENTRY => shown += 1,
            Leaf::Candidate | Leaf::Shown => {
                shown += 1;
                break;
            }
            Leaf::Hidden | Leaf::Glue | Leaf::Library => {}
        }
    }
    if shown == 0 { 0 } else { hidden }
}

/// Now, in nanoseconds since 1970.
pub(crate) fn now_nanos() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden_of(stack: &str) -> usize {
        let leaf: LeafRule = |name, _| match name {
            "h" => Leaf::Hidden,
            "e" => Leaf::Entry,
            "g" => Leaf::Glue,
            "l" => Leaf::Library,
            "c" => Leaf::Candidate,
            _ => Leaf::Shown,
        };
        hidden(leaf, stack.split_whitespace().map(|name| (name, "")))
    }

    #[test]
    fn functions_below_an_entry_point_are_hidden_with_it() {
        for (stack, count) in [
            ("", 0),
            ("s h s", 0),
            ("c h c", 0),
            ("h h c h c", 2),
            ("h g c", 1),
            ("h g h c", 3),
            ("c c e c", 3),
            ("s e c", 0),
            ("h c e h g h c", 6),
            ("l c", 0),
            ("l h l l c l", 4),
            ("h g l c", 1),
            ("c e l c l", 3),
            ("g c e g c", 3),
        ] {
            assert_eq!(hidden_of(stack), count, "{stack}");
        }
        let deep = |below: usize| format!("{} e c", "c ".repeat(below));
        assert_eq!(hidden_of(&deep(MAX_BELOW_ENTRY)), MAX_BELOW_ENTRY + 1);
        assert_eq!(hidden_of(&deep(MAX_BELOW_ENTRY + 1)), 0);
    }

    #[test]
    fn a_stack_of_hidden_functions_is_shown_whole() {
        for stack in ["h", "h g", "e", "c e", "h e g", "h l"] {
            assert_eq!(hidden_of(stack), 0, "{stack}");
        }
    }
}
