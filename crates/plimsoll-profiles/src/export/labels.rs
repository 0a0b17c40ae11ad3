//! The labels of samples.

use plimsoll_symbolize::Symbols;

use crate::profile::reading::Tag;
use crate::profile::{Described, describe};
use plimsoll_core::label;

/// The labels of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Labels<'a> {
    /// The program's own labels.
    Own(label::Labels),
    /// The size of each object, and the program's own labels.
    Bytes(i64, label::Labels),
    /// The minimum lifetime of each object in nanoseconds, and the program's own labels.
    Lifetime(i64, label::Labels),
    Wait(Described, label::Labels),
    /// Keys and values, sorted by key.
    Texts(Vec<(&'a str, &'a str)>),
}

/// Returns the labels of a sample at `frames` with that tag.
pub fn labels<'a>(tag: &'a Tag, frames: &[usize], symbols: &Symbols) -> Labels<'a> {
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
        Tag::Polled(polled) => {
            let mut texts = vec![("task", polled.name), ("spawned", polled.spawned.as_str())];
            for (key, value) in polled.labels.iter() {
                texts.push((key, value));
            }
            texts.sort_by_key(|&(key, _)| key);
            Labels::Texts(texts)
        }
        Tag::Activity(activity) => Labels::Texts(activity.labels(|| symbols.names(frames))),
        Tag::Wall(activity) => Labels::Texts(activity.wall_labels(|| symbols.names(frames))),
    }
}

impl<'a> Labels<'a> {
    /// Returns the labels that are texts and also occur in the text format, sorted by key.
    pub(super) fn texts(&self) -> Vec<(&'a str, &'a str)> {
        match self {
            Self::Own(own) | Self::Bytes(_, own) | Self::Lifetime(_, own) | Self::Wait(_, own) => {
                own.iter().collect()
            }
            Self::Texts(texts) => texts.clone(),
        }
    }

    /// Reports whether the sample belongs to an idle thread.
    pub(super) fn are_idle(&self) -> bool {
        matches!(self, Self::Wait(Described { idle: true, .. }, _))
    }
}
