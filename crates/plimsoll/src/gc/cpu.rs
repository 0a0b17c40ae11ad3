//! Processor time that collectors take.

use std::marker::PhantomData;
use std::sync::Arc;

use super::record::Record;
use super::registry::Attached;
use crate::os::clock;
use crate::primitives::Ordering;

/// What a collector's processor time was spent on, beside pauses: Go's `/cpu/classes/gc/*` and
/// `/cpu/classes/scavenge/*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuClass {
    /// Marking by threads of the program, in proportion to what they allocate.
    MarkAssist,
    /// Marking by threads of the collector's.
    MarkDedicated,
    /// Marking by processors that had nothing else to do.
    MarkIdle,
    /// Giving memory back to the system, by threads of the program.
    ScavengeAssist,
    /// The same by threads of the collector's.
    ScavengeBackground,
}

impl CpuClass {
    pub(crate) const COUNT: usize = 5;
}

/// A thread's work for a collector, until this is dropped. From
/// [`Collector::work`](super::Collector::work).
#[must_use = "the time is measured until this is dropped"]
#[derive(Debug)]
pub struct Work {
    attached: Arc<Attached>,
    class: CpuClass,
    began: u64,
    /// It is this thread's time.
    of_this_thread: PhantomData<*const ()>,
}

impl Work {
    pub(super) fn begin(attached: &Arc<Attached>, class: CpuClass) -> Self {
        Self {
            attached: Arc::clone(attached),
            class,
            began: clock::thread_cpu(),
            of_this_thread: PhantomData,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let took = clock::thread_cpu().saturating_sub(self.began);
        add(self.attached.record, self.class, took);
    }
}

pub(super) fn add(record: &Record, class: CpuClass, nanoseconds: u64) {
    let sum = &record.cpu_ns[class as usize];
    // Not beyond what the sums of all are safe from: 36 years.
    let nanoseconds = nanoseconds.min(1 << 60);
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
        Some(sum.saturating_add(nanoseconds).min(1 << 60))
    });
}
