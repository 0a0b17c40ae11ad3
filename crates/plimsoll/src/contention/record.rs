//! Putting events into the bucket table.

use super::rates::Weighted;
use super::{WaitKind, own, rates, totals};
use crate::label;
use crate::stack::{self, Kind, Start, TABLE};

/// What each cell of a bucket of [`Kind::Block`], [`Kind::Mutex`] and [`Kind::SelfContention`] counts.
pub(crate) mod cell {
    /// Events that were recorded.
    pub(crate) const SAMPLES: usize = 0;
    /// Events that those stand for, in units of 2^-16.
    pub(crate) const COUNT: usize = 1;
    /// Nanoseconds that those stand for.
    pub(crate) const DELAY: usize = 2;
}

pub(crate) use rates::COUNT_BITS;

/// What is waited for, or given up.
#[derive(Clone, Copy)]
pub(super) struct What {
    pub(super) kind: WaitKind,
    pub(super) name: Option<&'static str>,
}

/// A wait that is over, of the thread that is at `stack`, and whose labels are those of the wait.
pub(super) fn wait(what: What, waited_ns: u64, wakeup_ns: u64, stack: Start) {
    totals::add_wait(what.kind.is_lock(), waited_ns, wakeup_ns);
    let sample = rates::sample_wait(waited_ns, rates::block_rate(), rates::random);
    if let Some(sample) = sample {
        add(Kind::Block, what, sample, stack);
    }
}

/// The same for a wait of Plimsoll's own: see [`own`].
pub(super) fn own_wait(kind: WaitKind, waited_ns: u64, stack: Start) {
    own::add(waited_ns);
    let sample = rates::sample_wait(waited_ns, rates::block_rate(), rates::random);
    if let Some(sample) = sample {
        add(
            Kind::SelfContention,
            What { kind, name: None },
            sample,
            stack,
        );
    }
}

/// A release that others waited `blamed_ns` for, by the thread that is at `stack`, and whose labels
/// are those of the release.
pub(super) fn release(what: What, blamed_ns: u64, stack: Start) {
    totals::add_release(blamed_ns);
    let sample = rates::sample_release(blamed_ns, rates::mutex_fraction(), rates::random);
    let profile = if own::is_here() {
        own::add(blamed_ns);
        Kind::SelfContention
    } else {
        Kind::Mutex
    };
    if let Some(sample) = sample {
        add(profile, what, sample, stack);
    }
}

fn add(profile: Kind, what: What, sample: Weighted, stack: Start) {
    let labels = match what.name {
        // No hook: what has a name reports its own waits.
        Some(name) => label::current().and([("lock", name)]),
        None => label::current(),
    };
    let bucket = stack::site_from(profile, what.kind as u64, labels, stack);
    let amounts = [
        (cell::SAMPLES, 1),
        (cell::COUNT, sample.count),
        (cell::DELAY, sample.delay),
    ];
    TABLE.add(bucket, &amounts);
}
