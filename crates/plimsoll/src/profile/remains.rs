//! The heap profile of a process that is gone: what was in use, what was ever allocated, and what
//! was in use when most was.

use std::collections::HashMap;

use super::allocating;
use super::heap;
use super::reading::{MOST_VALUES, Reading, Sample, Stack, Tag, ValueType};
use crate::label::Labels;
use crate::postmortem::{Ended, PostMortem, Site};

const SAMPLE_TYPES: [ValueType; MOST_VALUES] = {
    let [alloc_objects, alloc_space, inuse_objects, inuse_space] = heap::SAMPLE_TYPES;
    [
        alloc_objects,
        alloc_space,
        inuse_objects,
        inuse_space,
        ValueType {
            name: "peak_objects",
            unit: "count",
        },
        ValueType {
            name: "peak_space",
            unit: "bytes",
        },
    ]
};

/// The profile, without names.
pub(crate) fn reading(of: &PostMortem) -> Reading {
    let ended = match of.ended {
        Ended::Exit(at) => at,
        Ended::Running | Ended::Otherwise => 0,
    };
    // Once for each set and not for each site: a set is sorted and looked up.
    let labels = of.label_sets().map(|(number, set)| {
        let set = set.iter().map(|(key, value)| (key, value));
        (number, Labels::of(set))
    });
    let labels: HashMap<u32, Labels> = labels.collect();
    Reading {
        sample_types: &SAMPLE_TYPES,
        default_type: "inuse_space",
        period_type: ValueType {
            name: "space",
            unit: "bytes",
        },
        period: signed(of.heap_rate),
        time_nanos: signed(if ended == 0 { of.began_ns } else { ended }),
        duration_nanos: signed(ended.saturating_sub(of.began_ns)),
        samples: of.sites.iter().map(|site| sample(site, &labels)).collect(),
        leaf: allocating::leaf,
        comments: comments(of),
    }
}

fn sample(site: &Site, labels: &HashMap<u32, Labels>) -> Sample {
    let in_use = site.in_use();
    let labels = labels.get(&site.labels).copied().unwrap_or_default();
    Sample {
        stack: Stack::of_other(&site.stack, site.overflow),
        values: [
            site.allocated.objects(),
            site.allocated.bytes,
            in_use.objects(),
            in_use.bytes,
            site.at_peak.objects(),
            site.at_peak.bytes,
        ]
        .map(signed),
        tag: match site.size {
            0 => Tag::Labels(labels),
            size => Tag::Bytes(signed(size), labels),
        },
    }
}

/// Of what no process has, but a damaged file may.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What a reader of the profile should know first.
fn comments(of: &PostMortem) -> Vec<String> {
    let (heap, estimated) = (&of.heap, of.estimated_in_use());
    let peak = of.sites.iter().map(|site| site.at_peak.bytes);
    let peak = peak.fold(0, u64::saturating_add);
    let ended = match of.ended {
        Ended::Running => "is still running: these are its numbers of now",
        Ended::Exit(_) => "ended by exit, at that time",
        Ended::Otherwise => {
            "was ended: killed, aborted, by a signal or by _exit; the time is that of its beginning"
        }
    };
    let exactly = if of.strays == 0 {
        "exactly"
    } else {
        "with counts of its children"
    };
    let mut comments = vec![
        format!("plimsoll: post-mortem: process {} {ended}", of.process),
        format!(
            "plimsoll: in use: {} bytes in {} objects {exactly}; {} bytes estimated from {} samples",
            heap.live_bytes(),
            heap.live_objects(),
            estimated.bytes,
            estimated.samples,
        ),
        format!(
            "plimsoll: allocated: {} bytes in {} objects {exactly}; freed: {} bytes in {} objects",
            heap.malloc_bytes, heap.mallocs, heap.free_bytes, heap.frees,
        ),
        format!("plimsoll: at the peak: {peak} bytes in use, estimated"),
        format!(
            "plimsoll: in flight at the end: {} samples, {} operations of several counts; of each there may be a part",
            of.in_flight(),
            of.threads_counting,
        ),
        format!(
            "plimsoll: lost: {} events without a stack, {} because the table of stacks was full, {} sampled blocks untracked, {} modules or sets of labels; {} stacks cut at code that cannot be unwound",
            of.without_stack, of.table_full, of.untracked, of.notes_lost, of.cut_stacks
        ),
    ];
    if of.strays > 0 {
        comments.push(format!(
            "plimsoll: not exact: {} children made by the system call clone or fork counted here until their next sample",
            of.strays
        ));
    }
    if of.damaged {
        comments.push(
            "plimsoll: the file is damaged or cut off: stacks, names or counts are missing".into(),
        );
    }
    comments
}
