//! The state that a forked child inherits from its parent: counts, the heap and profiles. The
//! child's report omits it.

use std::time::Duration;

use plimsoll_pprof::kinds;
use plimsoll_sys::primitives::{AtomicPtr, Ordering};

use crate::alloc::counts::{HEAP, HeapDelta};
use crate::alloc::malloc;
use crate::ledger::{Cut, Delta};
use crate::profile::reading::{Reading, now_nanos};
use crate::profile::{self, LostEvents};
use crate::stack::{Baseline, CPU_TABLE, TABLE};
use crate::stats::lock_stats;
use crate::stats::{HeapStats, LockStats};
use crate::thread;

/// Counts since the process began, or since an ancestor did.
pub(super) struct Counted {
    pub(super) heap: Cut<HeapDelta>,
    pub(super) locks: LockStats,
    pub(super) lost: LostEvents,
    pub(super) threads: u64,
}

/// The state of a child right after its fork.
pub(super) struct Inherited {
    pub(super) counted: Counted,
    /// The counts of all profiles but the next one.
    counts: Baseline,
    /// The profile of CPU time, which has another table, if any was recorded.
    cpu: Option<Reading>,
    /// The time of the fork, in nanoseconds since 1970.
    time_nanos: i64,
}

/// A null pointer in a process that was not forked from one that reports. Children of children
/// replace it.
static INHERITED: AtomicPtr<Inherited> = AtomicPtr::new(std::ptr::null_mut());

/// Records the inherited state in the child of a fork, which has one thread. The peak begins anew.
pub(super) fn take_down() {
    let counted = Counted::read();
    malloc::restart_peak(HeapStats::of(&counted.heap).live_bytes());
    TABLE.restart_peak();
    let was_recorded = CPU_TABLE.bytes() != 0;
    let cpu = was_recorded.then(|| profile::lookup(kinds::PROFILE.name));
    let inherited = Inherited {
        counted,
        counts: TABLE.baseline(),
        cpu: cpu.flatten().map(|profile| profile.read()),
        time_nanos: now_nanos(),
    };
    // The parent's record, if any, is leaked: one for each generation of forks.
    INHERITED.store(Box::into_raw(Box::new(inherited)), Ordering::Release);
}

pub(super) fn get() -> Option<&'static Inherited> {
    // SAFETY: the pointer is null, or `take_down` leaked its value.
    unsafe { INHERITED.load(Ordering::Acquire).as_ref() }
}

/// Returns the profile of that name, without the inherited part. Returns `None` for `threadcreate` in a child that
/// has created no thread by the C library.
pub(super) fn own_reading(
    inherited: Option<&'static Inherited>,
    name: &'static str,
) -> Option<Reading> {
    let Some(inherited) = inherited else {
        return Some(profile::lookup(name)?.read());
    };
    // The first thread was the only one after the fork.
    if name == kinds::THREADCREATE.name {
        let has_created = thread::creation::created() > inherited.counted.threads;
        return has_created.then(profile::threadcreate_without_first);
    }
    let profile = profile::lookup(name)?;
    if name == kinds::PROFILE.name {
        return Some(match &inherited.cpu {
            Some(earlier) => profile.read_since(earlier),
            None => profile.read(),
        });
    }
    let mut reading = TABLE.since(&inherited.counts, || profile.read());
    reading.duration_nanos = reading.time_nanos.saturating_sub(inherited.time_nanos);
    Some(reading)
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            heap: Cut {
                delta: HeapDelta::ZERO,
                exact: true,
            },
            locks: LockStats::default(),
            lost: LostEvents::default(),
            threads: 0,
        }
    }
}

impl Counted {
    pub(super) fn read() -> Self {
        Self {
            heap: HEAP.read(),
            locks: lock_stats(),
            lost: profile::lost_events(),
            threads: thread::creation::created(),
        }
    }

    /// Returns the counts since `earlier`. A process has one thread that it did not create.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let less = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        let shorter = |of: fn(&Self) -> Duration| of(self).saturating_sub(of(earlier));
        Self {
            heap: Cut {
                delta: self.heap.delta.since(&earlier.heap.delta),
                exact: self.heap.exact,
            },
            locks: LockStats {
                waits: less(|counted| counted.locks.waits),
                waited: shorter(|counted| counted.locks.waited),
                lock_waits: less(|counted| counted.locks.lock_waits),
                lock_waited: shorter(|counted| counted.locks.lock_waited),
                lock_waited_estimate: shorter(|counted| counted.locks.lock_waited_estimate),
                wakeup_latency: shorter(|counted| counted.locks.wakeup_latency),
                contended_releases: less(|counted| counted.locks.contended_releases),
                blamed: shorter(|counted| counted.locks.blamed),
            },
            lost: LostEvents {
                without_stack: less(|counted| counted.lost.without_stack),
                table_full: less(|counted| counted.lost.table_full),
                cut_stacks: less(|counted| counted.lost.cut_stacks),
                untracked: less(|counted| counted.lost.untracked),
                waits: less(|counted| counted.lost.waits),
                mappings: less(|counted| counted.lost.mappings),
                ..self.lost
            },
            threads: match earlier.threads {
                0 => self.threads,
                before => 1 + self.threads.saturating_sub(before),
            },
        }
    }
}
