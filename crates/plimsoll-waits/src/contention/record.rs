//! Records events in the bucket table.

use super::rates::Weighted;
use super::{WaitKind, internal, rates, totals};
use plimsoll_core::label;
use plimsoll_core::stack::{self, Kind, Start, TABLE};

/// The cells of a bucket of [`Kind::Block`], [`Kind::Mutex`] or [`Kind::SelfContention`].
pub mod cell {
    /// Recorded events.
    pub const SAMPLES: usize = 0;
    /// Estimated events, in units of 2^-16: the sum of the weights of the recorded ones.
    pub const COUNT: usize = 1;
    /// Estimated nanoseconds.
    pub const DELAY: usize = 2;
}

pub use rates::COUNT_BITS;

/// The object of a wait or a release.
#[derive(Clone, Copy)]
pub(super) struct EventInfo {
    pub(super) kind: WaitKind,
    pub(super) name: Option<&'static str>,
}

/// Records a wait that is over, of the thread at `stack`, under that thread's current labels.
pub(super) fn wait(what: EventInfo, waited_ns: u64, wakeup_ns: u64, stack: Start) {
    totals::add_wait(what.kind.is_lock(), waited_ns, wakeup_ns);
    let sample = rates::sample_wait(waited_ns, rates::block_rate(), rates::random);
    if let Some(sample) = sample {
        add(Kind::Block, what, sample, stack);
    }
}

/// Same as [`wait`], for a wait of Plimsoll's own: see [`internal`].
pub(super) fn own_wait(kind: WaitKind, waited_ns: u64, stack: Start) {
    internal::add(waited_ns);
    let sample = rates::sample_wait(waited_ns, rates::block_rate(), rates::random);
    if let Some(sample) = sample {
        add(
            Kind::SelfContention,
            EventInfo { kind, name: None },
            sample,
            stack,
        );
    }
}

/// Records a release for which others waited `blamed_ns`, by the thread at `stack`, under that
/// thread's current labels.
pub(super) fn release(what: EventInfo, blamed_ns: u64, stack: Start) {
    totals::add_release(blamed_ns);
    let sample = rates::sample_release(blamed_ns, rates::mutex_fraction(), rates::random);
    let profile = if internal::is_here() {
        internal::add(blamed_ns);
        Kind::SelfContention
    } else {
        Kind::Mutex
    };
    if let Some(sample) = sample {
        add(profile, what, sample, stack);
    }
}

fn add(profile: Kind, what: EventInfo, sample: Weighted, stack: Start) {
    let labels = match what.name {
        // Not called from a hook: only primitives that report their own waits have names.
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
