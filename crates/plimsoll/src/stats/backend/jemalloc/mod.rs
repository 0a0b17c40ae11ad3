//! jemalloc.
//!
//! jemalloc's own statistics are a copy that is made on demand, under the locks of all arenas and
//! all their bins, in 9 us for each arena. Here, what it maps and gives back is counted as it
//! happens, by [hooks] that the [arenas] are given before a block is in them; and what is in use is
//! a word in each arena, which jemalloc adds up without a lock.

mod arenas;
mod classes;
mod control;
mod hooks;
mod mappings;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::ops::Range;

use tikv_jemalloc_sys as ffi;

use super::{Backend, Figure, Held, Pages, SizeClass};
use crate::alloc::{Alloc, is_aligned_anyway};

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
/// well. With 0.6, whose jemalloc 5.3.0 has no such sum, `active` is absent.
///
/// | figure | | what it is |
/// |---|---|---|
/// | `reserved` | exact | address space of extents, by extent hooks: each mapping is an event |
/// | `committed` | exact | the part of it that jemalloc has put to use and not purged since, by the same hooks. Up to 2 MiB of the first arena that were mapped before there were hooks count from the start, although they are not used yet |
/// | `active` | racy | pages with blocks in them, or with blocks that threads keep for themselves: jemalloc's `approximate_stats.active`, a sum over arenas that is of no one instant |
/// | `metadata` | racy | blocks of 2 MiB or more for jemalloc's own structures, whatever of them is in use. As of the first allocation or the last [`free_os_memory()`](crate::free_os_memory), and the first block of each arena since then |
///
/// A reading takes less than a microsecond and no lock. `purge` empties the calling thread's cache,
/// and purges all arenas. Size classes are those of a refresh of jemalloc's statistics, which takes
/// 9 us for each arena and the locks of all of its bins, one after another; what is in use there is
/// also what threads keep for themselves.
///
/// Arenas get their hooks from the first thread that uses them, before its first allocation. All
/// figures are absent if jemalloc is set up in a way that hooks would change: `retain:false`,
/// `hpa:true`, `percpu_arena`, `thp`, `dss:primary`, batches of `process_madvise`, or a system that
/// does not overcommit. Where large zeroed blocks reuse pages that were not purged, jemalloc clears
/// them itself with hooks, and would have the system do it without. Arenas that the program makes,
/// or gives hooks of its own, are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jemalloc;

impl Alloc<Jemalloc> {
    /// Over jemalloc, with its backend. Needs the feature `jemalloc`.
    pub const fn jemalloc() -> Self {
        Self::with_backend(Jemalloc, &Jemalloc)
    }
}

impl Backend for Jemalloc {
    fn name(&self) -> &'static str {
        "jemalloc"
    }

    fn pages(&self) -> Pages {
        if !arenas::are_counted() {
            return Pages::ABSENT;
        }
        // On both sides of what has to be less.
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

    fn visit_memory(&self, visit: &mut dyn FnMut(Held, Range<usize>)) -> bool {
        arenas::are_counted() && mappings::visit(visit)
    }

    fn structures_at(&self, address: usize, words: [usize; 4]) -> Option<usize> {
        mappings::structures_at(address, words)
    }
}

/// The flags by which jemalloc aligns a block: none where it aligns every block of that size so.
#[inline(always)]
fn flags(align: usize, size: usize) -> c_int {
    if is_aligned_anyway(align, size) {
        0
    } else {
        ffi::MALLOCX_ALIGN(align)
    }
}

// SAFETY: jemalloc keeps to the contract; sizes are not zero, as the caller vouches, and alignments
// are asked for where they do not come by themselves.
unsafe impl GlobalAlloc for Jemalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and flags can be asked for.
        unsafe {
            match flags(layout.align(), layout.size()) {
                0 => ffi::malloc(layout.size()).cast(),
                flags => ffi::mallocx(layout.size(), flags).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match flags(layout.align(), layout.size()) {
                0 => ffi::calloc(1, layout.size()).cast(),
                flags => ffi::mallocx(layout.size(), flags | ffi::MALLOCX_ZERO).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's: the block is one of this size and alignment.
        unsafe {
            let flags = flags(layout.align(), layout.size());
            ffi::sdallocx(block.cast(), layout.size(), flags);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's: the block is jemalloc's, and the size is not zero.
        unsafe {
            match flags(layout.align(), new_size) {
                0 => ffi::realloc(block.cast(), new_size).cast(),
                flags => ffi::rallocx(block.cast(), new_size, flags).cast(),
            }
        }
    }
}
