//! The sources of metrics: groups of figures, each gathered once, at its first use.

use std::cell::OnceCell;

use plimsoll_process::{cpus, residency};

use crate::profile::LostEvents;
use plimsoll_core::histogram::Counts;
use plimsoll_core::internal_scope;
use plimsoll_stats::gc::{self, Figures, Pauses};
use plimsoll_stats::stats::heap_pages::HeapReading;
use plimsoll_stats::stats::limits::Limits;
use plimsoll_stats::stats::memory::of_reading;
use plimsoll_stats::stats::outside_heap::OutsideHeap;
use plimsoll_stats::stats::{self, CpuStats, Footprint, HeapStats, MemStats, processors};
use plimsoll_tasks::task::{self, States};
use plimsoll_threads::thread;
use plimsoll_unwind::cache_counts::{self, CacheCounts};
use plimsoll_waits::contention::{self, Totals};

/// The sources of all metrics. The figures of a group belong to one gathering; groups are gathered
/// some microseconds apart.
#[derive(Default)]
pub struct Gathered {
    /// Whether the pauses of single cycles are included, which no metric needs.
    with_pauses: bool,
    heap: OnceCell<HeapReading>,
    outside_heap: OnceCell<OutsideHeap>,
    collectors: OnceCell<(Figures, Pauses)>,
    cpu: OnceCell<CpuStats>,
    locks: OnceCell<Totals>,
    lost: OnceCell<LostEvents>,
    caches: OnceCell<CacheCounts>,
    tasks: OnceCell<Tasks>,
    threads: OnceCell<(u64, u64)>,
    mem: OnceCell<MemStats>,
    resident: OnceCell<Resident>,
    limits: OnceCell<Limits>,
    footprint: OnceCell<Footprint>,
    /// Times of pauses for collections, cached because two metrics have them.
    pause_times: OnceCell<Counts>,
}

/// Counts of tasks.
#[derive(Clone, Copy)]
pub(super) struct Tasks {
    pub(super) states: States,
    pub(super) created: u64,
}

/// Resident bytes of the process, as the kernel counts them; 0 if unknown.
#[derive(Clone, Copy)]
pub(super) struct Resident {
    pub total: u64,
    /// The part that belongs to no file.
    pub(super) anonymous: u64,
}

impl Gathered {
    /// Returns sources with the pauses of single cycles in [`Gathered::mem`], which otherwise lacks
    /// them.
    pub fn with_pauses() -> Self {
        Self {
            with_pauses: true,
            ..Self::default()
        }
    }

    fn heap_reading(&self) -> &HeapReading {
        self.heap.get_or_init(HeapReading::take)
    }

    pub(super) fn heap(&self) -> &HeapStats {
        &self.heap_reading().heap
    }

    pub(super) fn outside_heap(&self) -> &OutsideHeap {
        self.outside_heap.get_or_init(OutsideHeap::read)
    }

    fn collectors(&self) -> &(Figures, Pauses) {
        self.collectors.get_or_init(|| {
            let mut pauses = Pauses::new();
            let wanted = self.with_pauses.then_some(&mut pauses);
            let figures = gc::lock().sums(wanted);
            (figures, pauses)
        })
    }

    pub(super) fn gc(&self) -> &Figures {
        &self.collectors().0
    }

    pub(super) fn cpu(&self) -> &CpuStats {
        self.cpu
            .get_or_init(|| processors::cpu_stats_with(self.gc()))
    }

    pub(super) fn locks(&self) -> &Totals {
        self.locks.get_or_init(contention::totals)
    }

    pub(super) fn caches(&self) -> &CacheCounts {
        self.caches.get_or_init(cache_counts::read)
    }

    pub(super) fn lost(&self) -> &LostEvents {
        self.lost.get_or_init(crate::profile::lost_events)
    }

    pub(super) fn tasks(&self) -> &Tasks {
        self.tasks.get_or_init(|| {
            let (states, _) = task::states();
            Tasks {
                states,
                // Read after the states, so that it includes all of their tasks.
                created: task::created(),
            }
        })
    }

    /// Returns the number of all threads.
    pub(super) fn threads(&self) -> u64 {
        self.thread_counts().0
    }

    /// Returns the number of the program's threads.
    pub(super) fn program_threads(&self) -> u64 {
        self.thread_counts().1
    }

    fn thread_counts(&self) -> (u64, u64) {
        *self.threads.get_or_init(|| {
            let (all, of_program) = thread::counts();
            (all as u64, of_program as u64)
        })
    }

    pub(super) fn resident(&self) -> &Resident {
        self.resident.get_or_init(|| {
            let _own = internal_scope::scope();
            Resident {
                total: residency::total().unwrap_or(0),
                anonymous: residency::anonymous().unwrap_or(0),
            }
        })
    }

    pub(super) fn limits(&self) -> &Limits {
        self.limits.get_or_init(Limits::read)
    }

    pub(super) fn footprint(&self) -> &Footprint {
        self.footprint.get_or_init(stats::footprint)
    }

    pub(super) fn pause_times(&self) -> &Counts {
        self.pause_times.get_or_init(|| gc::PAUSE_TIMES.counts())
    }

    /// Returns the number of processors when [`Gathered::cpu`] was gathered.
    pub(super) fn processors(&self) -> u64 {
        self.cpu();
        cpus::available() as u64
    }

    /// Returns the figures of memory and collections in the form of Go's struct.
    pub fn mem(&self) -> &MemStats {
        self.mem.get_or_init(|| {
            let (figures, pauses) = self.collectors();
            let outside_heap = *self.outside_heap();
            let heap = self.heap_reading();
            of_reading(heap, outside_heap, (figures, pauses), self.cpu())
        })
    }
}
