//! mimalloc's memory for each size class: a sum over its pages.
//!
//! mimalloc keeps a map of all pages with blocks, of every thread, and can visit them. The visit
//! takes no lock and stops no thread, so a page may change or disappear meanwhile: impossible
//! figures are skipped. The memory stays mapped, since arenas are never unmapped.

use std::ffi::c_void;

use plimsoll_sys::os::region::page_size;

use super::ffi::{self, Area};
use crate::backend::SizeClass;

/// The alignment of pages, in bytes.
const SLICE: usize = 64 << 10;

/// The largest block that shares a page with others, in bytes.
const LARGEST_SHARED: usize = 512 << 10;

/// Space for mimalloc's 73 classes.
const MAX_CLASSES: usize = 80;

/// Visits all classes, by size. Returns false if mimalloc is configured so that its pages cannot be
/// visited while other threads run.
pub(super) fn visit(visit: &mut dyn FnMut(SizeClass)) -> bool {
    let Some(mut classes) = Classes::new() else {
        return false;
    };
    // SAFETY: a null heap selects the heap from which all threads allocate; the callback is called
    // only here, with the classes that it expects.
    let visited = unsafe {
        ffi::mi_heap_visit_blocks(
            std::ptr::null_mut(),
            false,
            add,
            (&raw mut classes).cast::<c_void>(),
        )
    };
    if visited {
        classes.all[..classes.count].iter().copied().for_each(visit);
    }
    visited
}

struct Classes {
    all: [SizeClass; MAX_CLASSES],
    count: usize,
}

impl Classes {
    fn new() -> Option<Self> {
        // SAFETY: pure functions of numbers, and an option of the version that `arena` has checked.
        let (good_size, pages_may_go) = unsafe {
            (
                |size| ffi::mi_good_size(size),
                ffi::mi_option_get(ffi::VISIT_ABANDONED) != 0,
            )
        };
        // A mimalloc with padding is a debug build, whose assertions only hold without other
        // threads.
        if pages_may_go || good_size(8) != 8 {
            return None;
        }
        let mut classes = Self {
            all: [SizeClass::default(); MAX_CLASSES],
            count: 0,
        };
        let mut size = 0;
        while size < LARGEST_SHARED && classes.count < MAX_CLASSES - 1 {
            size = good_size(size + 1);
            classes.put(size);
        }
        classes.put(usize::MAX);
        Some(classes)
    }

    fn put(&mut self, largest: usize) {
        self.all[self.count].largest = largest;
        self.count += 1;
    }

    fn add(&mut self, area: &Area) {
        let Area {
            blocks,
            reserved,
            committed,
            used,
            full_block_size: size,
            ..
        } = *area;
        // Beyond the address space: the page no longer exists.
        const MAX_BYTES: usize = 1 << 47;
        let is_page =
            size > 0 && size < MAX_BYTES && committed <= reserved && reserved <= MAX_BYTES;
        if !is_page || committed % size != 0 || used > committed / size {
            return;
        }
        if size <= LARGEST_SHARED && reserved > 8 * LARGEST_SHARED {
            return;
        }
        // Memory that does not contain blocks yet was not touched either. mimalloc's header of the
        // page lies before the blocks.
        let start = blocks as usize / SLICE * SLICE;
        let end = (blocks as usize)
            .saturating_add(committed)
            .next_multiple_of(page_size());
        let classes = &mut self.all[..self.count];
        let at = classes.partition_point(|class| class.largest < size);
        let class = &mut classes[at];
        class.room += (committed / size) as u64;
        class.in_use += used as u64;
        class.in_use_bytes += (used * size) as u64;
        class.active += (end - start) as u64;
    }
}

/// Adds the figures of a page. Called by mimalloc for each of its pages.
unsafe extern "C" fn add(
    _: *const c_void,
    area: *const Area,
    _: *mut c_void,
    _: usize,
    classes: *mut c_void,
) -> bool {
    // SAFETY: `visit` passed the classes, and no other thread uses them; the area is mimalloc's
    // copy.
    unsafe { (*classes.cast::<Classes>()).add(&*area) };
    true
}
