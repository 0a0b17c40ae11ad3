//! What mimalloc has for each size class: a sum over its pages.
//!
//! mimalloc keeps a map of all pages with blocks, of every thread, and can go through it. It takes
//! no lock and stops nobody, so a page may change or go while it is looked at: what cannot be is
//! left out. The memory stays, as nothing of an arena is ever unmapped.

use std::ffi::c_void;

use super::ffi::{self, Area};
use crate::os::region::PAGE;
use crate::stats::backend::SizeClass;

/// What pages begin and end at, in bytes.
const SLICE: usize = 64 << 10;

/// The largest block that shares a page with others, in bytes.
const LARGEST_SHARED: usize = 512 << 10;

/// Room for mimalloc's 73 classes.
const MOST: usize = 80;

/// All classes, by size. `false` if mimalloc is set up in a way that pages cannot be gone through
/// beside other threads.
pub(super) fn visit(visit: &mut dyn FnMut(SizeClass)) -> bool {
    let Some(mut classes) = Classes::new() else {
        return false;
    };
    // SAFETY: no heap is the one that all threads allocate from; the function is called in here
    // only, with what it is made for.
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
    all: [SizeClass; MOST],
    count: usize,
}

impl Classes {
    fn new() -> Option<Self> {
        // SAFETY: pure functions of numbers, and an option of the version that arenas were made
        // for.
        let (good_size, pages_may_go) = unsafe {
            (
                |size| ffi::mi_good_size(size),
                ffi::mi_option_get(ffi::VISIT_ABANDONED) != 0,
            )
        };
        // With padding, it is made for debugging, and asserts what only holds without other
        // threads.
        if pages_may_go || good_size(8) != 8 {
            return None;
        }
        let mut classes = Self {
            all: [SizeClass::default(); MOST],
            count: 0,
        };
        let mut size = 0;
        while size < LARGEST_SHARED && classes.count < MOST - 1 {
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
        // More than an address has: it is no page any more.
        const MOST_BYTES: usize = 1 << 47;
        let is_page =
            size > 0 && size < MOST_BYTES && committed <= reserved && reserved <= MOST_BYTES;
        if !is_page || committed % size != 0 || used > committed / size {
            return;
        }
        if size <= LARGEST_SHARED && reserved > 8 * LARGEST_SHARED {
            return;
        }
        // What has not been made blocks of yet has not been touched either. Before them there are
        // mimalloc's notes of the page.
        let start = blocks as usize / SLICE * SLICE;
        let end = (blocks as usize)
            .saturating_add(committed)
            .next_multiple_of(PAGE);
        let classes = &mut self.all[..self.count];
        let at = classes.partition_point(|class| class.largest < size);
        let class = &mut classes[at];
        class.room += (committed / size) as u64;
        class.in_use += used as u64;
        class.in_use_bytes += (used * size) as u64;
        class.active += (end - start) as u64;
    }
}

/// Called by mimalloc for each of its pages.
unsafe extern "C" fn add(
    _: *const c_void,
    area: *const Area,
    _: *mut c_void,
    _: usize,
    classes: *mut c_void,
) -> bool {
    // SAFETY: `visit` has passed the classes, and nobody else has them; the area is mimalloc's
    // copy.
    unsafe { (*classes.cast::<Classes>()).add(&*area) };
    true
}
