//! What a sample is labelled with.

use crate::profile::reading::Tag;
use crate::profile::{Described, describe};
use crate::symbol::Symbols;

/// The labels of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Labels<'a> {
    None,
    /// The size of each object.
    Bytes(i64),
    Wait(Described),
    /// Keys and values, sorted by key.
    Texts(Vec<(&'a str, &'a str)>),
}

/// The labels of a sample that is tagged so, at `frames`.
pub(super) fn labels<'a>(tag: &'a Tag, frames: &[usize], symbols: &Symbols) -> Labels<'a> {
    match tag {
        Tag::None => Labels::None,
        Tag::Bytes(bytes) => Labels::Bytes(*bytes),
        Tag::Wait(kind) => Labels::Wait(describe(*kind, symbols.names(frames))),
        Tag::Activity(activity) => Labels::Texts(activity.labels(|| symbols.names(frames))),
    }
}

impl Labels<'_> {
    /// Whether it is of a thread that has nothing to do.
    pub(super) fn are_idle(&self) -> bool {
        matches!(self, Self::Wait(Described { idle: true, .. }))
    }
}
