//! Go's `runtime.MemStats`, field for field.

use super::HeapStats;
use super::heap_pages::HeapReading;
use super::outside_heap::OutsideHeap;
use super::processors::CpuStats;
use crate::gc::record::PAUSES;
use crate::gc::{self, Figures, Pauses};
use plimsoll_backend::backend::Pages;
use plimsoll_ledger::size_class::go;

/// The number of entries of [`MemStats::by_size`].
pub const BY_SIZE_CLASSES: usize = 61;

/// The fields of Go's `runtime.MemStats` for this program: in Rust's spelling, with Go's meaning as
/// far as it applies without a garbage collector.
///
/// Sizes are bytes. All object counts and byte sums belong to one instant (see [`HeapStats`]).
/// These relations hold in every reading: `sys` is the sum of `heap_sys`, `stack_sys`, `mspan_sys`,
/// `mcache_sys`, `buck_hash_sys`, `gc_sys` and `other_sys`; `heap_idle + heap_inuse = heap_sys`;
/// `heap_alloc <= heap_inuse`; `heap_released <= heap_idle`; `heap_alloc = alloc`;
/// `heap_objects = mallocs - frees`.
///
/// "The allocator" is the underlying allocator of [`Alloc`](plimsoll_core::alloc::Alloc). Its
/// [`Backend`](super::Backend) reports the memory that it holds beyond the blocks in use: `pages`
/// has the figures as reported, each marked exact, racy or absent. They are read before the ledger
/// and after it, and the larger value counts. A reading whose figures contradict each other is
/// repeated, up to three times. [`heap_slack`](Self::heap_slack) is the amount by which fields had
/// to exceed the figures.
///
/// | allocator | `heap_sys` | `heap_released` | `heap_inuse` | `mspan_*` |
/// |---|---|---|---|---|
/// | jemalloc | exact: mappings | exact: purges | racy: pages with blocks | racy: as of the last [`free_os_memory()`](crate::stats::free_os_memory()) |
/// | mimalloc | exact: its arenas | exact: purges | absent | exact: tables of arenas |
/// | the system's, [detailed](plimsoll_backend::backend::System::DETAILED) | racy: `mallinfo2` | absent | racy: `mallinfo2` | absent |
/// | the system's, others | absent | absent | absent | absent |
///
/// If a figure is absent, the heap fields assume that the allocator holds only the blocks in use;
/// all other fields that depend on it are 0.
///
/// ```
/// let stats = plimsoll::mem_stats();
/// println!("{} of {} bytes are blocks in use", stats.alloc, stats.sys);
/// assert_eq!(stats.alloc, stats.heap_alloc);
/// assert!(stats.frees <= stats.mallocs);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemStats {
    /// Bytes of blocks in use, in class sizes. Exact. From the ledger.
    pub alloc: u64,
    /// Bytes ever allocated, in class sizes; never falls. Exact. From the ledger.
    pub total_alloc: u64,
    /// Bytes obtained from the system: the sum of the seven `*_sys` fields. Exact as a sum.
    pub sys: u64,
    /// Always 0, as in Go.
    pub lookups: u64,
    /// Blocks ever allocated; never falls. A count. Exact. From the ledger.
    pub mallocs: u64,
    /// Blocks ever freed; never falls. A count. Exact. From the ledger.
    pub frees: u64,

    /// The same as `alloc`.
    pub heap_alloc: u64,
    /// Bytes of address space that the allocator holds for blocks, `heap_inuse + heap_idle`: the
    /// backend's [`reserved`](Pages::reserved), plus Plimsoll's memory for the sampled blocks in
    /// use. The same as `heap_inuse` if absent.
    pub heap_sys: u64,
    /// Bytes of that without a block, whether backed by memory or not: `heap_sys - heap_inuse`.
    pub heap_idle: u64,
    /// Bytes of memory with at least one block in it: the backend's [`active`](Pages::active), plus
    /// sampled blocks. The same as `heap_alloc` if absent. The excess over `heap_alloc` is lost to
    /// fragmentation and to the rounding of sizes.
    pub heap_inuse: u64,
    /// Idle bytes without memory behind them, as far as the allocator decides it: they were
    /// returned to the system, or never used. The backend's [`reserved`](Pages::reserved) less its
    /// [`committed`](Pages::committed); 0 if one is absent.
    pub heap_released: u64,
    /// Bytes by which `heap_inuse` or `heap_sys`, whichever is more, had to exceed the backend's
    /// report, so that the relations hold; Go has no such field. One reason is a figure that lagged
    /// in each of four readings, which is rare. The other is the counted size of blocks: between 1
    /// and 32 KiB, sizes are rounded up to Go's classes, and an allocator may round less. A block
    /// of 7168 bytes, for example, counts as 8192, but jemalloc takes 7168. This shows if a heap of
    /// such blocks has no free space.
    pub heap_slack: u64,
    /// The backend's report: the figures before they were made into fields.
    pub pages: Pages,
    /// Blocks in use: `mallocs - frees`. A count. Exact. From the ledger.
    pub heap_objects: u64,

    /// Bytes of the stacks of the current threads: the whole address space of each without its
    /// guard, used or not. For the main thread, the part that the system has mapped so far. The
    /// resident part of a stack needs a system call for each stack, so only
    /// [`reconcile()`](crate::stats::reconcile()) reports it. Racy: each thread's stack is read at its own
    /// moment.
    ///
    /// A thread counts from its start, or, where thread creation is not intercepted, from its first
    /// allocation. A thread that was observed at neither does not count. A stack that the program
    /// supplied counts as well, wherever its memory comes from. If that memory is a block of the
    /// program's heap, it is in `heap_sys` too, and so in `sys` twice.
    /// [`reconcile()`](crate::stats::reconcile()) counts it once.
    pub stack_inuse: u64,
    /// The same as `stack_inuse`: only the C library keeps stacks for later threads.
    pub stack_sys: u64,
    /// The same as `mspan_sys`.
    pub mspan_inuse: u64,
    /// Bytes of the allocator's own bookkeeping: the backend's [`metadata`](Pages::metadata). 0 if
    /// absent.
    pub mspan_sys: u64,
    /// Bytes of the ledger's shards to which threads or processors write. Exact.
    pub mcache_inuse: u64,
    /// Bytes mapped for the ledger's shards. Exact.
    pub mcache_sys: u64,
    /// Bytes of the profiler's tables of stacks and buckets. Exact.
    pub buck_hash_sys: u64,
    /// Bytes of the collectors' own metadata, as they report:
    /// [`Collector::set_metadata_bytes`](crate::gc::Collector::set_metadata_bytes).
    pub gc_sys: u64,
    /// Bytes of everything else that Plimsoll uses itself: its internal heap, and its memory for
    /// sampled blocks outside the program's blocks. Exact, but not of the same instant as the
    /// counts.
    pub other_sys: u64,

    /// The heap size at which the next collection should end, in bytes, as collectors reported at
    /// their last mark terminations. The sum over all current collectors. Without collectors, this
    /// and the following fields are 0.
    pub next_gc: u64,
    /// The time of the last mark termination, in nanoseconds since 1970. Exact.
    pub last_gc: u64,
    /// Nanoseconds ever spent in the pauses of completed cycles; never falls. Exact.
    pub pause_total_ns: u64,
    /// The total pause of each of the last cycles, in nanoseconds: a ring whose newest entry is at
    /// `(num_gc + 255) % 256`. Exact.
    pub pause_ns: [u64; PAUSES],
    /// The end of marking in each of the last cycles, in nanoseconds since 1970. Exact.
    pub pause_end: [u64; PAUSES],
    /// Completed collections of all [collectors](crate::gc): those that reached their mark
    /// termination. A count, modulo 2^32 as in Go. Exact.
    pub num_gc: u32,
    /// The part of `num_gc` that the program requested. A count. Exact.
    pub num_forced_gc: u32,
    /// The share of CPU time spent on collections since the process began, from 0 to 1: see
    /// [`CpuStats`].
    pub gc_cpu_fraction: f64,
    /// Whether a collector exists.
    pub enable_gc: bool,
    /// Always false, as in Go.
    pub debug_gc: bool,

    /// Blocks by Go's size classes, up to 18432 bytes. Entry 0 is unused, as in Go. Exact, of the
    /// same instant as the rest: the ledger's classes fold exactly into Go's. Larger blocks are
    /// only in the totals.
    pub by_size: [BySize; BY_SIZE_CLASSES],
}

/// Allocations and frees in one of Go's size classes: sizes above the previous class's, up to
/// `size`.
///
/// ```
/// let stats = plimsoll::mem_stats();
/// for class in stats.by_size.iter().filter(|class| class.mallocs > class.frees) {
///     println!("{} blocks of up to {} bytes", class.mallocs - class.frees, class.size);
/// }
/// assert_eq!(stats.by_size[60].size, 18432);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BySize {
    /// The largest size in the class, in bytes.
    pub size: u32,
    /// Blocks ever allocated, a count. Exact.
    pub mallocs: u64,
    /// Blocks ever freed, a count. Exact.
    pub frees: u64,
}

/// Reads [`MemStats`]. Takes some microseconds and the backend's time more than
/// [`heap_stats()`](super::heap_stats()), and stops no thread either.
///
/// Not for signal handlers.
pub fn mem_stats() -> MemStats {
    let mut pauses = Pauses::new();
    let gc = gc::lock().sums(Some(&mut pauses));
    let cpu = super::processors::cpu_stats_with(&gc);
    of_reading(
        &HeapReading::take(),
        OutsideHeap::read(),
        (&gc, &pauses),
        &cpu,
    )
}

/// Returns the rings of pauses and of their ends, each entry at the index of its cycle's number.
fn rings(cycles: u64, pauses: &Pauses) -> ([u64; PAUSES], [u64; PAUSES]) {
    let (mut pause_ns, mut pause_end) = ([0; PAUSES], [0; PAUSES]);
    for (number, entry) in (0..cycles).rev().zip(pauses.entries().iter().rev()) {
        let at = number as usize % PAUSES;
        (pause_ns[at], pause_end[at]) = (entry.pause_ns, entry.end);
    }
    (pause_ns, pause_end)
}

fn by_size(heap: &HeapStats) -> [BySize; BY_SIZE_CLASSES] {
    let mut by_size = [BySize::default(); BY_SIZE_CLASSES];
    for (entry, size) in by_size.iter_mut().zip(go::SIZES) {
        entry.size = size;
    }
    for (counts, go_class) in heap.by_class.iter().zip(go::OF_CLASS) {
        if let Some(entry) = by_size.get_mut(usize::from(go_class)) {
            entry.mallocs += counts.mallocs;
            entry.frees += counts.frees;
        }
    }
    by_size
}

/// Returns the statistics of readings of one time.
pub fn of_reading(
    reading: &HeapReading,
    own: OutsideHeap,
    (gc, pauses): (&Figures, &Pauses),
    cpu: &CpuStats,
) -> MemStats {
    let heap = &reading.heap;
    let (pause_ns, pause_end) = rings(gc.cycles, pauses);
    let alloc = heap.live_bytes();
    let of_heap = reading.pages();
    let metadata = reading.pages.metadata.bytes;
    let (stack_inuse, stack_sys) = (own.stacks, own.stacks);
    let mut stats = MemStats {
        alloc,
        total_alloc: heap.malloc_bytes,
        sys: 0,
        lookups: 0,
        mallocs: heap.mallocs,
        frees: heap.frees,
        heap_alloc: alloc,
        heap_sys: of_heap.sys,
        heap_idle: of_heap.sys - of_heap.inuse,
        heap_inuse: of_heap.inuse,
        heap_released: of_heap.released,
        heap_slack: of_heap.slack,
        pages: reading.pages,
        heap_objects: heap.live_objects(),
        stack_inuse,
        stack_sys,
        mspan_inuse: metadata,
        mspan_sys: metadata,
        mcache_inuse: own.shards_in_use,
        mcache_sys: own.shards,
        buck_hash_sys: own.table,
        gc_sys: gc.metadata,
        other_sys: own.other,
        next_gc: gc.goal,
        last_gc: gc.last_end,
        pause_total_ns: gc.pause_ns,
        pause_ns,
        pause_end,
        num_gc: gc.cycles as u32,
        num_forced_gc: gc.forced as u32,
        gc_cpu_fraction: cpu.gc_fraction(),
        enable_gc: gc.attached != 0,
        debug_gc: false,
        by_size: by_size(heap),
    };
    stats.sys = stats.heap_sys
        + stats.stack_sys
        + stats.mspan_sys
        + stats.mcache_sys
        + stats.buck_hash_sys
        + stats.gc_sys
        + stats.other_sys;
    stats
}

#[cfg(test)]
mod tests {
    use plimsoll_backend::backend::Figure;
    use plimsoll_core::alloc::counts::HeapDelta;
    use plimsoll_ledger::ledger::{Cut, Delta as _};

    use super::*;
    use crate::stats::ClassCounts;
    use plimsoll_ledger::size_class;

    fn heap() -> HeapStats {
        let mut delta = HeapDelta {
            large_mallocs: 3,
            large_frees: 1,
            large_malloc_bytes: 300_000,
            large_free_bytes: 100_000,
            ..HeapDelta::ZERO
        };
        for class in 0..size_class::CLASSES {
            delta.mallocs[class] = 5 + class as u64;
            delta.frees[class] = class as u64 / 2;
        }
        HeapStats::from_cut(&Cut { delta, exact: true })
    }

    /// Destructures all fields, so that a new field must be placed here.
    #[test]
    fn every_field_is_accounted_for_and_the_relations_hold() {
        let heap = heap();
        let gc = Figures {
            metadata: 19,
            goal: 23,
            ..Figures::default()
        };
        let own = OutsideHeap {
            stacks: 29,
            shards_in_use: 7,
            shards: 11,
            table: 13,
            other: 17,
        };
        let pages = Pages {
            reserved: Figure::exact(40 << 30),
            committed: Figure::exact(30 << 30),
            active: Figure::racy(20 << 30),
            metadata: Figure::racy(29),
        };
        let reading = HeapReading {
            heap: heap.clone(),
            pages,
            sampled: 10,
        };
        let MemStats {
            alloc,
            total_alloc,
            sys,
            lookups,
            mallocs,
            frees,
            heap_alloc,
            heap_sys,
            heap_idle,
            heap_inuse,
            heap_released,
            heap_slack,
            pages: pages_reported,
            heap_objects,
            stack_inuse,
            stack_sys,
            mspan_inuse,
            mspan_sys,
            mcache_inuse,
            mcache_sys,
            buck_hash_sys,
            gc_sys,
            other_sys,
            next_gc,
            last_gc,
            pause_total_ns,
            pause_ns,
            pause_end,
            num_gc,
            num_forced_gc,
            gc_cpu_fraction,
            enable_gc,
            debug_gc,
            by_size,
        } = of_reading(&reading, own, (&gc, &Pauses::new()), &CpuStats::default());
        assert_eq!(alloc, heap.live_bytes());
        assert_eq!(total_alloc, heap.malloc_bytes);
        assert_eq!(
            sys,
            heap_sys + stack_sys + mspan_sys + mcache_sys + buck_hash_sys + gc_sys + other_sys
        );
        assert_eq!((mallocs, frees), (heap.mallocs, heap.frees));
        assert_eq!(heap_alloc, alloc);
        assert_eq!(heap_idle + heap_inuse, heap_sys);
        assert_eq!((heap_sys, heap_inuse), ((40 << 30) + 10, (20 << 30) + 10));
        assert_eq!((heap_released, heap_slack), (10 << 30, 0));
        assert_eq!((pages_reported, mspan_inuse, mspan_sys), (pages, 29, 29));
        assert!(heap_released <= heap_idle && heap_alloc <= heap_inuse && stack_inuse <= stack_sys);
        assert_eq!(heap_objects, mallocs - frees);
        assert_eq!((stack_inuse, stack_sys), (29, 29));
        assert_eq!(
            (mcache_inuse, mcache_sys, buck_hash_sys, other_sys),
            (7, 11, 13, 17)
        );
        assert_eq!(
            (lookups, gc_sys, next_gc, last_gc, pause_total_ns),
            (0, 19, 23, 0, 0)
        );
        assert_eq!((pause_ns, pause_end), ([0; PAUSES], [0; PAUSES]));
        assert_eq!(
            (num_gc, num_forced_gc, gc_cpu_fraction, enable_gc, debug_gc),
            (0, 0, 0.0, false, false)
        );
        assert_eq!((by_size[0].mallocs, by_size[60].size), (0, 18432));
        // Everything up to 18432 bytes is in exactly one entry.
        let small = |of: fn(&ClassCounts) -> u64| -> u64 {
            heap.by_class
                .iter()
                .filter(|class| class.size <= 18432)
                .map(of)
                .sum()
        };
        assert_eq!(
            by_size.iter().map(|entry| entry.mallocs).sum::<u64>(),
            small(|class| class.mallocs)
        );
        assert_eq!(
            by_size.iter().map(|entry| entry.frees).sum::<u64>(),
            small(|class| class.frees)
        );
        assert!(by_size.iter().all(|entry| entry.frees <= entry.mallocs));
    }
}
