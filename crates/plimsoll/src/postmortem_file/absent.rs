//! Replaces the module on systems without post-mortem files: no file is ever made.

use plimsoll_postmortem::layout::Layout;
use plimsoll_sys::os::region::{Part, Region};

use crate::ledger::{Protocol, Room};
use crate::size_class;

/// See the module of Linux.
pub(crate) struct Parts {
    pub(crate) shards: Room,
    pub(crate) table: Part,
}

/// See the module of Linux.
pub(crate) struct Contents {
    pub(crate) table: (usize, usize),
    pub(crate) history_bytes: usize,
    pub(crate) per_cpu_bytes: usize,
    pub(crate) layout: Layout,
    pub(crate) class_sizes: [usize; size_class::CLASSES],
    pub(crate) heap_rate: u64,
    pub(crate) stack_depth: u64,
}

pub(crate) fn open(_: &str, _: &Contents) -> Option<Parts> {
    None
}

pub(crate) fn ledger_is_open(_: Protocol, _: usize, _: usize) {}

/// See the module of Linux.
pub(crate) mod history {
    use super::Region;

    pub(crate) fn regions(_: impl FnOnce(usize) -> [usize; 3]) -> Option<&'static [Region; 3]> {
        None
    }

    pub(crate) fn is_in_use() -> bool {
        false
    }
}

pub(crate) fn bytes() -> usize {
    0
}

/// Returns `true`: a request was answered by a warning before `main`.
pub(crate) fn was_asked_for() -> bool {
    true
}

pub(crate) fn note_labels(_: u32, _: &[(&str, &str)]) {}

pub(crate) fn note_sampling(_: u64, _: u64) {}

pub(crate) fn count_without_stack() {}

pub(crate) fn count_cut_stack() {}

pub(crate) fn count_untracked() {}

#[cfg_attr(not(feature = "mmap"), allow(dead_code))]
pub(crate) fn count_lost_mapping() {}

#[inline]
pub(crate) fn leave_if_parents() {}
