//! mimalloc.
//!
//! mimalloc's own figure for committed memory does not fall when it gives memory back, on Linux. So
//! it is given [arenas](arena) of Plimsoll's, and tells us what it uses of those.

mod arena;
mod classes;
mod ffi;

use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;

use libmimalloc_sys as mi;

use super::{Backend, Figure, Held, Pages, SizeClass};
use crate::alloc::{Alloc, is_aligned_anyway};

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
/// &plimsoll::stats::backend::MiMalloc)` works as well. This type does without the look at the
/// alignment that the crate's pays for with each block.
///
/// | figure | | what it is |
/// |---|---|---|
/// | `reserved` | exact | the arenas, of 4 GiB and more each, and what mimalloc has mapped by itself since they are there: blocks that do not fit into an arena |
/// | `committed` | exact | what of the arenas is in use or was, and has not been given back since, and all that mimalloc has mapped by itself |
/// | `active` | absent | mimalloc does not know which pages of other threads are in use |
/// | `metadata` | exact | the arenas' own tables, and what mimalloc has mapped before. Most of it is not in use |
///
/// If a request does not fit into the arenas that there are, mimalloc makes one of its own, of
/// which nobody tells what is given back: from then on `committed` is racy, and more than it
/// should be. A reading takes less than a microsecond and no lock. `purge` is
/// `mi_collect(true)`, which has the calling thread and all arenas give back what is free; blocks
/// that other threads keep for themselves stay.
///
/// Size classes are a sum over mimalloc's pages in arenas, of all threads, which are looked at one
/// after another without a lock: about as long as it takes to read a word of each. A block that was
/// freed by another thread than its own is in use there until its own takes it back. Memory of a
/// page of which no blocks were made yet does not count as active. Blocks that do not fit into an
/// arena, or are aligned to more than 64 KiB, are not in it.
///
/// All figures are absent with other versions than mimalloc 3.3, where there is no room for an
/// arena (`RLIMIT_AS`, a system that does not overcommit), and if mimalloc is set up in a way that
/// arenas like these would change: `allow_large_os_pages`, `disallow_arena_alloc`,
/// `page_commit_on_demand`, `purge_decommits=0`, or any arena before the first allocation. With the
/// feature `v2` of `libmimalloc-sys`, programs cannot be linked.
#[derive(Clone, Copy, Debug, Default)]
pub struct MiMalloc;

impl Alloc<MiMalloc> {
    /// Over mimalloc, with its backend. Needs the feature `mimalloc`.
    pub const fn mimalloc() -> Self {
        Self::with_backend(MiMalloc, &MiMalloc)
    }
}

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
        // SAFETY: callable by any thread outside of the allocator.
        unsafe { ffi::mi_collect(true) };
    }

    fn enlist(&self) {
        arena::open();
    }

    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        arena::is_open() && classes::visit(visit)
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(Held, Range<usize>)) -> bool {
        arena::visit_memory(visit)
    }
}

// SAFETY: mimalloc keeps to the contract; alignments are asked for where they do not come by
// themselves.
unsafe impl GlobalAlloc for MiMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two can be asked for.
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
        // SAFETY: as above.
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
        // SAFETY: the caller's: the block is mimalloc's.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's: the block is mimalloc's.
        unsafe {
            if is_aligned_anyway(layout.align(), new_size) {
                mi::mi_realloc(block.cast(), new_size).cast()
            } else {
                mi::mi_realloc_aligned(block.cast(), new_size, layout.align()).cast()
            }
        }
    }
}
