//! What a sample is labelled with.

use crate::label;
use crate::profile::reading::Tag;
use crate::profile::{Described, describe};
use crate::symbol::Symbols;

/// The labels of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Labels<'a> {
    /// The program's own.
    Own(label::Labels),
    /// The size of each object, and the program's own.
    Bytes(i64, label::Labels),
    /// The nanoseconds that each object lived for at least, and the program's own.
    Lifetime(i64, label::Labels),
    Wait(Described, label::Labels),
    /// Keys and values, sorted by key.
    Texts(Vec<(&'a str, &'a str)>),
}

/// The labels of a sample that is tagged so, at `frames`.
pub(super) fn labels<'a>(tag: &'a Tag, frames: &[usize], symbols: &Symbols) -> Labels<'a> {
    match tag {
        Tag::Labels(own) => Labels::Own(*own),
        Tag::Bytes(bytes, own) => Labels::Bytes(*bytes, *own),
        Tag::Lifetime(from, own) => Labels::Lifetime(*from, *own),
        Tag::Wait(kind, own) => Labels::Wait(describe(*kind, symbols.names(frames)), *own),
        Tag::Task(task, own) => {
            let task = (!task.is_empty()).then_some(("task", *task));
            let mut texts: Vec<_> = own.iter().chain(task).collect();
            texts.sort_by_key(|&(key, _)| key);
            Labels::Texts(texts)
        }
        Tag::Activity(activity) => Labels::Texts(activity.labels(|| symbols.names(frames))),
    }
}

impl<'a> Labels<'a> {
    /// Those that are texts and are shown in text as well, sorted by key.
    pub(super) fn texts(&self) -> Vec<(&'a str, &'a str)> {
        match self {
            Self::Own(own) | Self::Bytes(_, own) | Self::Lifetime(_, own) | Self::Wait(_, own) => {
                own.iter().collect()
            }
            Self::Texts(texts) => texts.clone(),
        }
    }

    /// Whether it is of a thread that has nothing to do.
    pub(super) fn are_idle(&self) -> bool {
        matches!(self, Self::Wait(Described { idle: true, .. }, _))
    }
}
