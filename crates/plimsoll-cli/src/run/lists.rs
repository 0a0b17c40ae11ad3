//! The lists of sites in the summary: their titles, values and bases.

use super::sites::Samples;
use super::temporary;
use super::units::{bytes, count, nanoseconds};

/// A list of sites.
pub(super) struct List {
    pub(super) title: &'static str,
    pub(super) profile: &'static str,
    /// The index of the value. The one before is the number of objects or samples.
    pub(super) value: usize,
    pub(super) unit: fn(u64) -> String,
    pub(super) basis: Basis,
    pub(super) samples: Samples,
    /// Whether each site has its source files and lines.
    pub(super) with_lines: bool,
}

/// What the values of a list are based on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// Bytes of sampled blocks.
    Bytes,
    /// Numbers of sampled blocks.
    Blocks,
    /// Samples that count alike.
    Samples,
    /// Events of which some are recorded.
    Events,
    /// All events.
    All,
    /// Resident memory by holder: exact, except that the heap is divided by sampled blocks.
    Resident,
}

/// All lists, in the order of the summary.
pub(super) const LISTS: [List; 13] = [
    list("used CPU time", "profile", 1, nanoseconds, Basis::Samples),
    list(
        "elapsed time of all threads",
        "wall",
        1,
        nanoseconds,
        Basis::Events,
    ),
    list("resident at exit", "memory", 0, bytes, Basis::Resident),
    List {
        with_lines: true,
        ..list("still allocated at exit", "heap", 3, bytes, Basis::Bytes)
    },
    List {
        with_lines: true,
        ..list("in use at the peak", "peak", 1, bytes, Basis::Bytes)
    },
    list("allocated", "heap", 1, bytes, Basis::Bytes),
    list("allocated and freed", "lifetimes", 1, bytes, Basis::Bytes),
    List {
        with_lines: true,
        ..list(
            "temporary blocks",
            "lifetimes",
            temporary::TEMPORARY,
            count,
            Basis::Blocks,
        )
    },
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
        with_lines: false,
    }
}
