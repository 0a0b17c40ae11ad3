//! CPU time of collectors.

use std::marker::PhantomData;
use std::sync::Arc;

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::Ordering;

use super::record::Record;
use super::registry::Attached;

/// A class of a collector's CPU time, other than pauses: Go's `/cpu/classes/gc/*` and
/// `/cpu/classes/scavenge/*`.
///
/// ```
/// use plimsoll::gc::{Collector, CpuClass};
/// use std::time::Duration;
///
/// let collector = Collector::register("script")?;
/// let marked = Duration::from_millis(5);
/// collector.add_cpu_time(CpuClass::MarkDedicated, marked);
/// assert!(plimsoll::cpu_stats().gc_mark_dedicated >= marked);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuClass {
    /// Marking by threads of the program, in proportion to what they allocate.
    MarkAssist,
    /// Marking by threads of the collector.
    MarkDedicated,
    /// Marking by processors that would be idle otherwise.
    MarkIdle,
    /// Returning memory to the system, by threads of the program.
    ScavengeAssist,
    /// Returning memory to the system, by threads of the collector.
    ScavengeBackground,
}

impl CpuClass {
    pub(crate) const COUNT: usize = 5;
}

/// A guard: the thread works for a collector until it is dropped. Returned by
/// [`Collector::work`](super::Collector::work).
///
/// ```
/// use plimsoll::gc::{Collector, CpuClass};
///
/// let collector = Collector::register("script")?;
/// let work = collector.work(CpuClass::MarkAssist);
/// // Mark.
/// drop(work);
/// println!("{:?} of CPU time", plimsoll::cpu_stats().gc_mark_assist);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[must_use = "the time is measured until this is dropped"]
#[derive(Debug)]
pub struct Work {
    attached: Arc<Attached>,
    class: CpuClass,
    began: u64,
    /// Not `Send`: the CPU time is this thread's.
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
    // A limit of 36 years per class, with which the sums of all collectors cannot overflow.
    let nanoseconds = nanoseconds.min(1 << 60);
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
        Some(sum.saturating_add(nanoseconds).min(1 << 60))
    });
}
