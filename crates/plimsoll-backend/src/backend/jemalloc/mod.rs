//! jemalloc.
//!
//! jemalloc's own statistics are a copy that is made on demand. Making it takes the locks of all
//! arenas and all their bins, and 9 us for each arena. Here, [hooks] count mappings and purges as
//! they happen; the [arenas] receive them before they contain blocks. The bytes in use are a word
//! in each arena, which jemalloc sums without a lock.

mod arenas;
mod classes;
mod control;
mod hooks;
mod mappings;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::ops::Range;

use tikv_jemalloc_sys as ffi;

use super::is_aligned_anyway;
use super::{Backend, Figure, Pages, SizeClass, Usage};

/// jemalloc, as an allocator and as its own backend. Needs the feature `jemalloc`.
///
/// ```
/// #[global_allocator]
/// static ALLOC: plimsoll::Alloc<plimsoll::Jemalloc> = plimsoll::Alloc::jemalloc();
/// # fn main() {
/// #     drop(vec![1]);
/// #     assert!(plimsoll::mem_stats().pages.reserved.known() > Some(1000));
/// # }
/// ```
///
/// The crate `tikv-jemallocator`, 0.6 or 0.7, is the same jemalloc:
/// `Alloc::with_backend(tikv_jemallocator::Jemalloc, &plimsoll::stats::backend::Jemalloc)` works as
/// well. With 0.6, `active` is absent, because jemalloc 5.3.0 lacks that sum.
///
/// | figure | | meaning |
/// |---|---|---|
/// | `reserved` | exact | address space of extents, by extent hooks: each mapping is an event |
/// | `committed` | exact | the part of it that jemalloc has put to use and not purged since, by the same hooks. Up to 2 MiB of the first arena that were mapped before the hooks count from the start, although they are not used yet |
/// | `active` | racy | pages with blocks in them, or with blocks in threads' caches: jemalloc's `approximate_stats.active`, a sum over arenas that is not of one instant |
/// | `metadata` | racy | blocks of 2 MiB or more for jemalloc's own structures, used or not. As of the first allocation or the last `free_os_memory()`, plus the first block of each arena since then |
///
/// A reading takes less than a microsecond and no lock. `purge` empties the calling thread's cache,
/// and purges all arenas. Size classes come from a refresh of jemalloc's statistics. It takes 9 us
/// for each arena, and the locks of all of its bins, one after another. Blocks in threads' caches
/// count as in use there.
///
/// The first thread that uses an arena installs its hooks, before its first allocation. All figures
/// are absent in configurations of jemalloc that hooks would change: `retain:false`, `hpa:true`,
/// `percpu_arena`, `thp`, `dss:primary`, batches of `process_madvise`, or a system that does not
/// overcommit. Where large zeroed blocks reuse pages that were not purged, jemalloc with hooks
/// clears them itself; without hooks, the system does. Arenas that the program creates, or to which
/// it gives other hooks, are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jemalloc;

impl Backend for Jemalloc {
    fn name(&self) -> &'static str {
        "jemalloc"
    }

    fn pages(&self) -> Pages {
        if !arenas::are_counted() {
            return Pages::ABSENT;
        }
        // Committed bytes are read on both sides, since `active` may not exceed them.
        let committed = hooks::committed();
        let active = arenas::active();
        let committed = committed.max(hooks::committed());
        Pages {
            reserved: Figure::exact(hooks::reserved() as u64),
            committed: Figure::exact(committed as u64),
            active: active.map_or(Figure::ABSENT, |active| Figure::racy(active as u64)),
            metadata: Figure::racy(arenas::metadata() as u64),
        }
    }

    fn purge(&self) {
        arenas::purge();
    }

    fn enlist(&self) {
        arenas::enlist();
    }

    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        classes::visit(visit)
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
        arenas::are_counted() && mappings::visit(visit)
    }

    fn structures_at(&self, address: usize, words: [usize; 4]) -> Option<usize> {
        mappings::structures_at(address, words)
    }
}

/// Returns the flags that make jemalloc align a block: none if it aligns every block of that size
/// sufficiently.
#[inline(always)]
fn flags(align: usize, size: usize) -> c_int {
    if is_aligned_anyway(align, size) {
        0
    } else {
        ffi::MALLOCX_ALIGN(align)
    }
}

// SAFETY: jemalloc meets the contract; sizes are not zero, as `GlobalAlloc` requires, and
// alignments are requested where they are not implied.
unsafe impl GlobalAlloc for Jemalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: jemalloc accepts any nonzero size and these flags.
        unsafe {
            match flags(layout.align(), layout.size()) {
                0 => ffi::malloc(layout.size()).cast(),
                flags => ffi::mallocx(layout.size(), flags).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: jemalloc accepts any nonzero size and these flags.
        unsafe {
            match flags(layout.align(), layout.size()) {
                0 => ffi::calloc(1, layout.size()).cast(),
                flags => ffi::mallocx(layout.size(), flags | ffi::MALLOCX_ZERO).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: jemalloc made the block, with this size and alignment, as `GlobalAlloc::dealloc`
        // requires.
        unsafe {
            let flags = flags(layout.align(), layout.size());
            ffi::sdallocx(block.cast(), layout.size(), flags);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: jemalloc made the block and the new size is not zero, as `GlobalAlloc::realloc`
        // requires.
        unsafe {
            match flags(layout.align(), new_size) {
                0 => ffi::realloc(block.cast(), new_size).cast(),
                flags => ffi::rallocx(block.cast(), new_size, flags).cast(),
            }
        }
    }
}
