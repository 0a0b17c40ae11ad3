//! mimalloc.
//!
//! On Linux, mimalloc's own figure for committed memory does not fall when it returns memory. So it
//! allocates from [arenas](arena) that Plimsoll registers, whose callback reports commits and
//! decommits.

mod arena;
mod classes;
mod ffi;

use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;

use libmimalloc_sys as mi;

use super::is_aligned_anyway;
use super::{Backend, Figure, Pages, SizeClass, Usage};

/// mimalloc 3, as an allocator and as its own backend. Needs the feature `mimalloc`.
///
/// ```
/// #[global_allocator]
/// static ALLOC: plimsoll::Alloc<plimsoll::MiMalloc> = plimsoll::Alloc::mimalloc();
/// # fn main() {
/// #     drop(vec![1]);
/// #     assert!(plimsoll::mem_stats().pages.reserved.known() > Some(1000));
/// # }
/// ```
///
/// The crate `mimalloc` is the same mimalloc: `Alloc::with_backend(mimalloc::MiMalloc,
/// &plimsoll::stats::backend::MiMalloc)` works as well. This type avoids a check of the alignment
/// that the crate's type makes for each block.
///
/// | figure | | meaning |
/// |---|---|---|
/// | `reserved` | exact | the arenas, of 4 GiB and more each, and the mappings that mimalloc has made itself since the first of them: blocks that do not fit into an arena |
/// | `committed` | exact | the part of the arenas that is or was in use, and has not been returned since, and all mappings that mimalloc has made itself |
/// | `active` | absent | mimalloc does not know which pages of other threads are in use |
/// | `metadata` | exact | the arenas' own tables, and mimalloc's mappings from before. Most of it is not in use |
///
/// If a request does not fit into these arenas, mimalloc creates its own arena, and no callback
/// reports the memory that it returns. From then on `committed` is racy, and too large. A reading
/// takes less than a microsecond and no lock. `purge` is `mi_collect(true)`, in which the calling
/// thread and all arenas return their free memory; free blocks in other threads' caches stay.
///
/// Size classes are a sum over mimalloc's pages in arenas, of all threads, visited one after
/// another without a lock: about as long as it takes to read a word of each. A block that another
/// thread freed counts as in use until its own thread collects it. Memory of a page in which no
/// blocks were made yet does not count as active. Blocks that do not fit into an arena, or are
/// aligned to more than 64 KiB, are not included.
///
/// All figures are absent with other versions than mimalloc 3.3, and if an arena cannot be mapped
/// (`RLIMIT_AS`, a system that does not overcommit). They are also absent in configurations of
/// mimalloc that arenas like these would change: `allow_large_os_pages`, `disallow_arena_alloc`,
/// `page_commit_on_demand`, `purge_decommits=0`, or any arena before the first allocation. With the
/// feature `v2` of `libmimalloc-sys`, programs cannot be linked.
#[derive(Clone, Copy, Debug, Default)]
pub struct MiMalloc;

impl Backend for MiMalloc {
    fn name(&self) -> &'static str {
        "mimalloc"
    }

    fn pages(&self) -> Pages {
        let Some(bytes) = arena::bytes() else {
            return Pages::ABSENT;
        };
        let committed = bytes.committed as u64;
        Pages {
            reserved: Figure::exact(bytes.reserved as u64),
            committed: if bytes.all_are_ours {
                Figure::exact(committed)
            } else {
                Figure::racy(committed)
            },
            active: Figure::ABSENT,
            metadata: Figure::exact(bytes.metadata as u64),
        }
    }

    fn purge(&self) {
        // SAFETY: any thread may call this outside the allocator.
        unsafe { ffi::mi_collect(true) };
    }

    fn enlist(&self) {
        arena::open();
    }

    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        arena::is_open() && classes::visit(visit)
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
        arena::visit_memory(visit)
    }
}

// SAFETY: mimalloc meets the contract; alignments are requested where they are not implied.
unsafe impl GlobalAlloc for MiMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: mimalloc accepts any size and any power of two.
        unsafe {
            if is_aligned_anyway(layout.align(), layout.size()) {
                mi::mi_malloc(layout.size()).cast()
            } else {
                mi::mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: mimalloc accepts any size and any power of two.
        unsafe {
            if is_aligned_anyway(layout.align(), layout.size()) {
                mi::mi_zalloc(layout.size()).cast()
            } else {
                mi::mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: mimalloc made the block, as `GlobalAlloc::dealloc` requires.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: mimalloc made the block, as `GlobalAlloc::realloc` requires.
        unsafe {
            if is_aligned_anyway(layout.align(), new_size) {
                mi::mi_realloc(block.cast(), new_size).cast()
            } else {
                mi::mi_realloc_aligned(block.cast(), new_size, layout.align()).cast()
            }
        }
    }
}
