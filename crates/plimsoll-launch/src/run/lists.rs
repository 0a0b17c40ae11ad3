//! The lists of sites in the summary: their titles, values and bases.

use super::sites::Samples;
use super::units::{bytes, nanoseconds};

/// A list of sites.
pub(super) struct List {
    pub(super) title: &'static str,
    pub(super) profile: &'static str,
    /// The index of the value. The one before is the number of objects or samples.
    pub value: usize,
    pub(super) unit: fn(u64) -> String,
    pub(super) basis: Basis,
    pub(super) samples: Samples,
}

/// The basis of the values of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Samples that count alike.
    Samples,
    /// Events of which some are recorded.
    Events,
    /// All events.
    All,
    /// Resident memory by holder, without sites of the heap: exact.
    Resident,
}

/// All lists below the table of memory, in the order of the summary.
pub(super) const LISTS: [List; 8] = [
    list("used CPU time", "profile", 1, nanoseconds, Basis::Samples),
    list(
        "elapsed time of all threads",
        "wall",
        1,
        nanoseconds,
        Basis::Events,
    ),
    list(
        "mapped by the program at exit, touched or not",
        "mmap",
        3,
        bytes,
        Basis::All,
    ),
    list("mapped and unmapped", "mmap", 1, bytes, Basis::All),
    list(
        "delayed other threads by holding a lock",
        "mutex",
        1,
        nanoseconds,
        Basis::Events,
    ),
    List {
        samples: Samples::OfLocks,
        ..list("waited for locks", "block", 1, nanoseconds, Basis::Events)
    },
    List {
        samples: Samples::OfOthers,
        ..list("waited otherwise", "block", 1, nanoseconds, Basis::Events)
    },
    list(
        "other resident memory at exit",
        "memory",
        0,
        bytes,
        Basis::Resident,
    ),
];

const fn list(
    title: &'static str,
    profile: &'static str,
    value: usize,
    unit: fn(u64) -> String,
    basis: Basis,
) -> List {
    List {
        title,
        profile,
        value,
        unit,
        basis,
        samples: Samples::All,
    }
}
