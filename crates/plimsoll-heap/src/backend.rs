//! The heap as Plimsoll's backend: its counts and pages are those of `plimsoll::heap_stats()` and
//! `plimsoll::mem_stats()`.

use std::alloc::Layout;
use std::ops::Range;

use plimsoll::stats::backend::{
    Backend, CountedBlocks, CountedPages, Counts, Figure, Pages, SizeClass, Usage,
};

use crate::global::Heap;
use crate::heap::{self, CENTRAL, EPOCH, PAGES};
use crate::lists::slots::SLOTS_IN_USE;
use crate::size_class::{self, LARGEST};
use crate::stats::{HeapStats, stats};

/// All figures are exact and of one instant.
///
/// ```
/// use plimsoll::SamplingAlloc;
/// use plimsoll_heap::Heap;
///
/// #[global_allocator]
/// static ALLOC: SamplingAlloc<Heap> = SamplingAlloc::over_counts(Heap, &Heap);
///
/// # fn main() {
/// let block = std::hint::black_box(vec![0_u8; 100]);
/// let stats = plimsoll::mem_stats();
/// assert!(stats.heap_alloc >= 112 && stats.heap_slack == 0);
/// # drop(block);
/// # }
/// ```
///
/// `purge` returns all free pages to the system; free blocks in lists keep theirs. Size classes are those
/// of the heap; blocks in lists count as free.
impl Backend for Heap {
    fn name(&self) -> &'static str {
        "plimsoll-heap"
    }

    fn pages(&self) -> Pages {
        pages(&stats())
    }

    fn purge(&self) {
        heap::release_idle();
    }

    fn counts(&self) -> Option<&dyn Counts> {
        Some(self)
    }

    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        let stats = stats();
        for counts in &stats.by_class[1..] {
            let in_use = counts.mallocs - counts.frees - counts.outside;
            visit(SizeClass {
                largest: counts.size as usize,
                room: counts.room,
                in_use,
                in_use_bytes: in_use * u64::from(counts.size),
                active: counts.inuse,
            });
        }
        let blocks = stats.large.mallocs - stats.large.frees;
        let of_classes: u64 = stats.by_class.iter().map(|counts| counts.inuse).sum();
        visit(SizeClass {
            largest: usize::MAX,
            room: blocks,
            in_use: blocks,
            in_use_bytes: stats.large.malloc_bytes - stats.large.free_bytes,
            active: stats.heap_inuse - of_classes,
        });
        true
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
        visit(Usage::Blocks, PAGES.memory());
        for structures in PAGES.structures().into_iter().chain(SLOTS_IN_USE.memory()) {
            visit(Usage::Structures, structures);
        }
        true
    }
}

impl Counts for Heap {
    fn read(&self, visit: &mut dyn FnMut(CountedBlocks)) -> CountedPages {
        let stats = stats();
        for counts in &stats.by_class[1..] {
            let size = u64::from(counts.size);
            visit(CountedBlocks {
                size: counts.size as usize,
                mallocs: counts.mallocs,
                frees: counts.frees,
                malloc_bytes: counts.mallocs * size,
                free_bytes: counts.frees * size,
            });
        }
        visit(CountedBlocks {
            size: usize::MAX,
            mallocs: stats.large.mallocs,
            frees: stats.large.frees,
            malloc_bytes: stats.large.malloc_bytes,
            free_bytes: stats.large.free_bytes,
        });
        CountedPages {
            pages: pages(&stats),
            outside: stats.outside,
        }
    }

    fn counted_size(&self, layout: Layout) -> usize {
        match layout.size() <= LARGEST {
            true => size_class::SIZES[class(layout)] as usize,
            false => layout.size(),
        }
    }

    fn count_malloc(&self, layout: Layout) {
        // A heap that has not started has no statistics.
        heap::start();
        CENTRAL.count_outside_alloc(&EPOCH, class(layout));
    }

    fn count_free(&self, layout: Layout) {
        CENTRAL.count_outside_free(&EPOCH, class(layout));
    }
}

/// Returns the class of a small block outside the heap. There, alignments of more than a page need no run
/// of pages.
fn class(layout: Layout) -> usize {
    size_class::of_aligned(layout.size(), layout.align())
        .unwrap_or_else(|| size_class::of(layout.size().min(LARGEST)))
}

fn pages(stats: &HeapStats) -> Pages {
    Pages {
        reserved: Figure::exact(stats.heap_sys),
        committed: Figure::exact(stats.heap_sys - stats.heap_released),
        active: Figure::exact(stats.heap_inuse),
        metadata: Figure::exact(stats.metadata_sys),
    }
}
