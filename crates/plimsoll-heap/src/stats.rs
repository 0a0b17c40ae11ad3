//! Statistics of one instant.

use plimsoll_sys::os::membarrier;

use crate::central;
use crate::heap::{CENTRAL, EPOCH, PAGES, READER, is_started};
use crate::lists::areas::{AREAS, Kind};
use crate::lists::slots::SLOTS_IN_USE;
use crate::pages::count;
use crate::size_class::{CLASSES, PAGE, SIZES, SPAN_BLOCKS, SPAN_PAGES};

/// The counts of one size class since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The size of each block, in bytes.
    pub size: u32,
    /// Blocks allocated.
    pub mallocs: u64,
    /// Blocks freed: never more than `mallocs`.
    pub frees: u64,
    /// Blocks that are allocated outside the heap's pages, sampled blocks of Plimsoll. They are a part
    /// of `mallocs - frees`.
    pub outside: u64,
    /// The number of blocks for which the class has pages: at least `mallocs - frees - outside`.
    pub room: u64,
    /// Bytes of the pages of the class. The sum over all classes and the bytes of large blocks is
    /// `heap_inuse` at most.
    pub inuse: u64,
}

/// The counts of large blocks since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeStats {
    /// Blocks allocated.
    pub mallocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Bytes allocated, as requested.
    pub malloc_bytes: u64,
    /// Bytes freed.
    pub free_bytes: u64,
}

/// All figures of the heap at one instant. Each is exact.
///
/// A block counts with the size of its class, or as requested if it is larger than
/// [`LARGEST`](crate::size_class::LARGEST) or aligned to more than 8 KiB. The names are those of Go's `runtime.MemStats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapStats {
    /// Blocks allocated since the start.
    pub mallocs: u64,
    /// Blocks freed since the start.
    pub frees: u64,
    /// Bytes allocated since the start.
    pub total_alloc: u64,
    /// Bytes of the blocks that are allocated.
    pub heap_alloc: u64,
    /// Bytes of blocks that are allocated outside the heap's pages: see [`ClassStats::outside`]. They
    /// are a part of `heap_alloc`.
    pub outside: u64,
    /// Bytes of pages that have blocks, allocated or free: at least `heap_alloc - outside`.
    pub heap_inuse: u64,
    /// Bytes of pages without blocks.
    pub heap_idle: u64,
    /// Bytes of pages without blocks whose memory is with the system. They are a part of `heap_idle`.
    pub heap_released: u64,
    /// Bytes of all pages that ever had blocks: `heap_inuse + heap_idle`.
    pub heap_sys: u64,
    /// Accessible bytes of the heap's own tables. The lists count as used in full.
    pub metadata_sys: u64,
    /// The counts of each class. Class 0 is unused.
    pub by_class: [ClassStats; CLASSES],
    /// The counts of all other blocks. Each has separate pages.
    pub large: LargeStats,
}

/// Returns the figures of the heap at one instant, after all operations that have ended.
///
/// No thread waits for the reader. An operation that begins while the reader reads takes the central
/// lists, behind a lock that the reader does not take: some hundred nanoseconds.
pub fn stats() -> HeapStats {
    let mut stats = HeapStats {
        mallocs: 0,
        frees: 0,
        total_alloc: 0,
        heap_alloc: 0,
        outside: 0,
        heap_inuse: 0,
        heap_idle: 0,
        heap_released: 0,
        heap_sys: 0,
        metadata_sys: 0,
        by_class: [ClassStats::default(); CLASSES],
        large: LargeStats::default(),
    };
    if !is_started() {
        return stats;
    }
    let reader = READER.lock(&EPOCH);
    SLOTS_IN_USE.close();
    freeze();
    let epoch = EPOCH.turn();
    for slot in SLOTS_IN_USE.used() {
        for (class, sum) in stats.by_class.iter_mut().enumerate().skip(1) {
            let reading = SLOTS_IN_USE.head(slot, class).read();
            sum.mallocs = sum.mallocs.wrapping_add(reading.allocated);
            sum.frees = sum.frees.wrapping_add(reading.freed);
        }
    }
    SLOTS_IN_USE.open();
    for (class, sum) in stats.by_class.iter_mut().enumerate().skip(1) {
        let counts = CENTRAL.counted_lock(class).at(epoch);
        sum.size = SIZES[class];
        sum.mallocs = sum.mallocs.wrapping_add(counts[central::count::ALLOCATED]);
        sum.frees = sum.frees.wrapping_add(counts[central::count::FREED]);
        sum.outside = counts[central::count::OUTSIDE];
        sum.inuse = counts[central::count::PAGES] * PAGE as u64;
        sum.room = counts[central::count::PAGES] / u64::from(SPAN_PAGES[class])
            * u64::from(SPAN_BLOCKS[class]);
        stats.outside += sum.outside * u64::from(sum.size);
        stats.mallocs += sum.mallocs;
        stats.frees += sum.frees;
        stats.total_alloc += sum.mallocs * u64::from(sum.size);
        stats.heap_alloc += (sum.mallocs - sum.frees) * u64::from(sum.size);
    }
    let counts = PAGES.counted_lock().at(epoch);
    drop(reader);
    stats.large = LargeStats {
        mallocs: counts[count::LARGE_ALLOCATED],
        frees: counts[count::LARGE_FREED],
        malloc_bytes: counts[count::LARGE_ALLOCATED_BYTES],
        free_bytes: counts[count::LARGE_FREED_BYTES],
    };
    stats.mallocs += stats.large.mallocs;
    stats.frees += stats.large.frees;
    stats.total_alloc += stats.large.malloc_bytes;
    stats.heap_alloc += stats.large.malloc_bytes - stats.large.free_bytes;
    let bytes = |count: usize| counts[count] * PAGE as u64;
    stats.heap_inuse = bytes(count::IN_USE);
    stats.heap_sys = bytes(count::TOP);
    stats.heap_idle = stats.heap_sys - stats.heap_inuse;
    stats.heap_released = stats.heap_idle - bytes(count::IDLE);
    stats.metadata_sys = counts[count::METADATA_BYTES] + SLOTS_IN_USE.bytes() as u64;
    stats
}

/// Waits until no operation that began before the lists closed can change one.
fn freeze() {
    match AREAS.kind() {
        Kind::Processors => {
            let _ = membarrier::restart_all_sequences();
        }
        Kind::Threads => {
            let _ = membarrier::fence_all_threads();
            AREAS.wait_for_operations();
        }
        Kind::None => {}
    }
}
