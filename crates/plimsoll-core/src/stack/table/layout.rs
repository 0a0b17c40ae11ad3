//! The layout of the table, for readers of post-mortem files.

use std::mem::offset_of;

use plimsoll_postmortem::layout::TableLayout;

use super::super::heap_cycle::SLOTS;
use super::super::peak::{InUse, Peak};
use super::super::{DEEPEST, HIDDEN_FRAMES};
use super::{BucketEntry, CELLS, Head, KINDS, Kind, StackEntry, UNIT};

/// The layout of the table. This layer does not know the meaning of a bucket's counts: their
/// indices are 0 here.
pub const LAYOUT: TableLayout = TableLayout {
    unit: UNIT,
    used: offset_of!(Head, used),
    overflowed: offset_of!(Head, overflowed),
    overflow: offset_of!(Head, overflow),
    kinds: KINDS,
    newest: offset_of!(Head, newest),
    folded: offset_of!(Head, folded),
    folded_slot: offset_of!(Head, folded_slot),
    folded_totals: offset_of!(Head, folded_totals),
    peak: offset_of!(Head, peak) + offset_of!(Peak, number),
    bucket_bytes: size_of::<BucketEntry>(),
    bucket_size: offset_of!(BucketEntry, size),
    bucket_before: offset_of!(BucketEntry, before),
    bucket_stack: offset_of!(BucketEntry, stack),
    bucket_labels: offset_of!(BucketEntry, labels),
    bucket_kind: offset_of!(BucketEntry, kind),
    bucket_in_flight: offset_of!(BucketEntry, in_flight),
    bucket_totals: offset_of!(BucketEntry, totals),
    bucket_slots: offset_of!(BucketEntry, slots),
    slots: SLOTS,
    cells: CELLS,
    bucket_now: offset_of!(BucketEntry, in_use) + offset_of!(InUse, now),
    bucket_then: offset_of!(BucketEntry, in_use) + offset_of!(InUse, then),
    bucket_peak: offset_of!(BucketEntry, in_use) + offset_of!(InUse, peak),
    heap_kind: Kind::Heap as usize,
    malloc_samples: 0,
    malloc_weight: 0,
    malloc_bytes: 0,
    free_samples: 0,
    free_weight: 0,
    free_bytes: 0,
    mapping_kind: Kind::Mapping as usize,
    mapping_calls: 0,
    mapping_bytes: 0,
    mapping_bytes_gone: 0,
    mapping_ranges: 0,
    mapping_ranges_gone: 0,
    stack_bytes: size_of::<StackEntry>(),
    stack_length: offset_of!(StackEntry, length),
    max_frames: DEEPEST + HIDDEN_FRAMES,
};

#[cfg(test)]
mod tests;
