//! Go's `runtime.MemStats`, field for field.

use super::HeapStats;
use super::backend::Pages;
use super::cpu_stats::CpuStats;
use super::heap_pages::HeapReading;
use super::outside_heap::OutsideHeap;
use crate::alloc::size_class::go;
use crate::gc::{self, Figures, Pauses};

/// The number of entries of [`MemStats::by_size`].
pub const BY_SIZE_CLASSES: usize = 61;

/// The number of entries of [`MemStats::pause_ns`] and [`MemStats::pause_end`].
pub const PAUSES: usize = 256;

/// What Go's `runtime.MemStats` says of a Go program, said of this one: the same fields, in Rust's
/// spelling, with Go's meaning as far as there is one without a garbage collector.
///
/// Sizes are bytes. All object counts and byte sums belong to one instant (see [`HeapStats`]).
/// These relations hold in every reading: `sys` is the sum of `heap_sys`, `stack_sys`, `mspan_sys`,
/// `mcache_sys`, `buck_hash_sys`, `gc_sys` and `other_sys`; `heap_idle + heap_inuse = heap_sys`;
/// `heap_alloc <= heap_inuse`; `heap_released <= heap_idle`; `heap_alloc = alloc`;
/// `heap_objects = mallocs - frees`.
///
/// "The allocator" is the one under [`Alloc`](crate::Alloc). What it holds beyond the blocks that
/// are in use is told by its [`Backend`](super::Backend): `pages` has the figures as they were
/// told, each with what it is worth. They are read before the ledger and after it, and the larger
/// counts. A reading whose figures contradict each other is taken again, up to three times.
/// [`heap_slack`](Self::heap_slack) says by how much fields had to be more than that.
///
/// | allocator | `heap_sys` | `heap_released` | `heap_inuse` | `mspan_*` |
/// |---|---|---|---|---|
/// | jemalloc | exact: mappings | exact: purges | racy: pages with blocks | racy: as of the last [`free_os_memory()`](crate::free_os_memory) |
/// | mimalloc | exact: its arenas | exact: purges | absent | exact: tables of arenas |
/// | the system's, [detailed](super::backend::System::DETAILED) | racy: `mallinfo2` | absent | racy: `mallinfo2` | absent |
/// | the system's, others | absent | absent | absent | absent |
///
/// What is absent is as if the allocator held nothing but the blocks in use, and is 0 as far as it
/// is something else.
#[derive(Clone, Debug, PartialEq)]
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
    /// Bytes of address space that the allocator has for blocks, `heap_inuse + heap_idle`: the
    /// backend's [`reserved`](Pages::reserved), and Plimsoll's memory for the sampled blocks in
    /// use. The same as `heap_inuse` if absent.
    pub heap_sys: u64,
    /// Bytes of that without a block in them, whether there is memory behind them or not:
    /// `heap_sys - heap_inuse`.
    pub heap_idle: u64,
    /// Bytes of memory with at least one block in it: the backend's [`active`](Pages::active), and
    /// sampled blocks. The same as `heap_alloc` if absent. What it is more than `heap_alloc` is
    /// lost to fragmentation, and to rounding of sizes.
    pub heap_inuse: u64,
    /// Idle bytes that have no memory behind them, as far as the allocator decides it: they were
    /// given back to the system, or never used. The backend's [`reserved`](Pages::reserved) less
    /// its [`committed`](Pages::committed); 0 if one is absent.
    pub heap_released: u64,
    /// Bytes by which `heap_inuse` or `heap_sys`, whichever is more, had to be above what the
    /// backend told, so that the relations hold; in Go there is no such field. There are two
    /// reasons. One is a figure that was behind in each of four readings: rare. The other is
    /// the size as which blocks count: between 1 and 32 KiB, sizes are rounded up to Go's
    /// classes, and an allocator may round less (for a block of 7168 bytes, which counts as 8192,
    /// jemalloc takes 7168). It shows if a heap of such blocks has no room left.
    pub heap_slack: u64,
    /// What the backend told: the figures before they were made into fields.
    pub pages: Pages,
    /// Blocks in use: `mallocs - frees`. A count. Exact. From the ledger.
    pub heap_objects: u64,

    /// Bytes of the stacks of the threads that there are: all the address space of each, without
    /// its guard, whether it was used or not; of the main thread's, what the system has made of it
    /// so far. How much of that is in memory takes a system call for each to find out, so it is in
    /// [`reconcile()`](crate::reconcile()) only. Racy: each thread's as of the moment it was
    /// looked at.
    ///
    /// A thread counts from its beginning, or, where the creation of threads is not seen, from its
    /// first allocation. One that was seen by neither does not count. The stack that the program
    /// gave to a thread itself counts as well, wherever the program has it from: if that is a
    /// block of its heap, it is in `heap_sys` too, and so in `sys` twice.
    /// [`reconcile()`](crate::reconcile()) has it once.
    pub stack_inuse: u64,
    /// The same as `stack_inuse`: nothing is kept for threads that are to come but what the C
    /// library keeps.
    pub stack_sys: u64,
    /// The same as `mspan_sys`.
    pub mspan_inuse: u64,
    /// Bytes of the allocator's own bookkeeping: the backend's [`metadata`](Pages::metadata). 0 if
    /// absent.
    pub mspan_sys: u64,
    /// Bytes of the ledger's shards that threads or processors write to. Exact.
    pub mcache_inuse: u64,
    /// Bytes mapped for the ledger's shards. Exact.
    pub mcache_sys: u64,
    /// Bytes of the profiler's tables of stacks and buckets. Exact.
    pub buck_hash_sys: u64,
    /// Bytes that collectors have for themselves, as they say:
    /// [`Collector::set_metadata_bytes`](crate::gc::Collector::set_metadata_bytes).
    pub gc_sys: u64,
    /// Bytes of everything else that Plimsoll uses itself: its own heap, and its memory for
    /// sampled blocks as far as none of the program's is in it. Exact, but not of the same
    /// instant as the counts.
    pub other_sys: u64,

    /// The heap size at which the next collection is to be over, in bytes, as collectors said at
    /// their last mark terminations. The sum over all that there are. Without collectors, this and
    /// the following are 0.
    pub next_gc: u64,
    /// When the last mark termination was, in nanoseconds since 1970. Exact.
    pub last_gc: u64,
    /// Nanoseconds ever spent in the pauses of completed cycles; never falls. Exact.
    pub pause_total_ns: u64,
    /// The pauses of each of the last cycles, in nanoseconds, in all: a ring whose newest entry is
    /// at `(num_gc + 255) % 256`. Exact.
    pub pause_ns: [u64; PAUSES],
    /// When the marking of each of the last cycles ended, in nanoseconds since 1970. Exact.
    pub pause_end: [u64; PAUSES],
    /// Completed collections, of all [collectors](crate::gc): those that came to their mark
    /// termination. A count, modulo 2^32 as in Go. Exact.
    pub num_gc: u32,
    /// Those of them that the program asked for. A count. Exact.
    pub num_forced_gc: u32,
    /// The share of the processors' time that was spent on collections since the process began,
    /// from 0 to 1: see [`CpuStats`].
    pub gc_cpu_fraction: f64,
    /// Whether there is a collector.
    pub enable_gc: bool,
    /// Always false, as in Go.
    pub debug_gc: bool,

    /// Blocks by Go's size classes, up to 18432 bytes. Entry 0 is unused, as in Go. Exact, of the
    /// same instant as the rest: the ledger's classes fold exactly into Go's. Larger blocks
    /// are only in the totals.
    pub by_size: [BySize; BY_SIZE_CLASSES],
}

/// What was allocated and freed in one of Go's size classes: sizes above the one before, up to
/// `size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BySize {
    /// The largest size in the class, in bytes.
    pub size: u32,
    /// Blocks ever allocated, a count. Exact.
    pub mallocs: u64,
    /// Blocks ever freed, a count. Exact.
    pub frees: u64,
}

/// Reads [`MemStats`]: some microseconds and what the backend takes more than
/// [`heap_stats()`](super::heap_stats()), and like that without stopping anyone.
///
/// Not for signal handlers.
pub fn mem_stats() -> MemStats {
    let mut pauses = Pauses::new();
    let gc = gc::lock().sums(Some(&mut pauses));
    let cpu = super::cpu_stats::of(&gc);
    MemStats::new(
        &HeapReading::take(),
        OutsideHeap::read(),
        (&gc, &pauses),
        &cpu,
    )
}

impl MemStats {
    pub(crate) fn new(
        reading: &HeapReading,
        own: OutsideHeap,
        (gc, pauses): (&Figures, &Pauses),
        cpu: &CpuStats,
    ) -> Self {
        let heap = &reading.heap;
        let (pause_ns, pause_end) = rings(gc.cycles, pauses);
        let alloc = heap.live_bytes();
        let of_heap = reading.pages();
        let metadata = reading.pages.metadata.bytes;
        let (stack_inuse, stack_sys) = (own.stacks, own.stacks);
        let mut stats = Self {
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
}

/// The pauses and their ends, each where its cycle's number says.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::size_class;
    use crate::stats::backend::Figure;
    use crate::stats::{ClassCounts, LargeCounts};

    fn heap() -> HeapStats {
        let mut heap = HeapStats {
            mallocs: 0,
            frees: 0,
            malloc_bytes: 0,
            free_bytes: 0,
            by_class: [ClassCounts::default(); size_class::CLASSES],
            large: LargeCounts {
                mallocs: 3,
                frees: 1,
                malloc_bytes: 300_000,
                free_bytes: 100_000,
            },
            exact: true,
        };
        for (class, counts) in heap.by_class.iter_mut().enumerate() {
            let (size, mallocs, frees) =
                (size_class::size(class), 5 + class as u64, class as u64 / 2);
            *counts = ClassCounts {
                size,
                mallocs,
                frees,
            };
        }
        heap.mallocs =
            heap.large.mallocs + heap.by_class.iter().map(|class| class.mallocs).sum::<u64>();
        heap.frees = heap.large.frees + heap.by_class.iter().map(|class| class.frees).sum::<u64>();
        let bytes = |of: fn(&ClassCounts) -> u64| -> u64 {
            heap.by_class
                .iter()
                .map(|class| of(class) * class.size as u64)
                .sum()
        };
        heap.malloc_bytes = heap.large.malloc_bytes + bytes(|class| class.mallocs);
        heap.free_bytes = heap.large.free_bytes + bytes(|class| class.frees);
        heap
    }

    /// A field that is added has to be placed here, and so decided on.
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
            pages: pages_told,
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
        } = MemStats::new(&reading, own, (&gc, &Pauses::new()), &CpuStats::default());
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
        assert_eq!((pages_told, mspan_inuse, mspan_sys), (pages, 29, 29));
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
        // Everything up to 18432 bytes is in some entry, once.
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
