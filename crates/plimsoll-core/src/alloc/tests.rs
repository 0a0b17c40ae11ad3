//! Tests of allocations through an [`Alloc`] in Plimsoll's own scope.

use std::alloc::GlobalAlloc;

use super::*;
use crate::internal_heap;
use crate::internal_scope;

/// Waits until the process is set up, which the thread of another test may do: until then, Plimsoll has no heap.
fn wait_for_setup() {
    while !process::open() {
        std::thread::yield_now();
    }
}

/// Plimsoll's heap is limited. An allocation that does not fit becomes the program's: no code could
/// handle the failure.
#[test]
fn blocks_that_outgrow_the_internal_heap_become_the_programs() {
    wait_for_setup();
    let alloc = Alloc::system();
    let layout = |size: usize| Layout::from_size_align(size, 8).unwrap();
    let (small, large) = (layout(4000), layout(1500 << 20));
    let _own = internal_scope::scope();
    // SAFETY: the layouts are valid; each block is used with its own layout.
    unsafe {
        let block = alloc.alloc(small);
        assert!(internal_heap::contains(block as usize));
        block.write_bytes(7, small.size());
        let moved = alloc.realloc(block, small, large.size());
        assert!(!moved.is_null() && !internal_heap::contains(moved as usize));
        let moved_bytes = std::slice::from_raw_parts(moved, small.size());
        assert!(moved_bytes.iter().all(|&byte| byte == 7));
        alloc.dealloc(moved, large);

        let block = alloc.alloc(large);
        assert!(!block.is_null() && !internal_heap::contains(block as usize));
        alloc.dealloc(block, large);
    }
}

/// In Plimsoll's own scope every allocation takes the cold path, also after a failed request.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "sanitizers abort at such requests")]
fn a_refused_request_leaves_an_own_scope_as_it_was() {
    wait_for_setup();
    let alloc = Alloc::system();
    let layout = |size: usize| Layout::from_size_align(size, 1).unwrap();
    let refuse_then_allocate = |is_own: bool| {
        for size in [(1 << 62) + 1, isize::MAX as usize] {
            // SAFETY: the layouts are valid; each block is used with its own layout.
            unsafe {
                let block = alloc.alloc(layout(48));
                assert_eq!(internal_heap::contains(block as usize), is_own);
                assert!(alloc.alloc(layout(size)).is_null());
                assert!(alloc.alloc_zeroed(layout(size)).is_null());
                assert!(alloc.realloc(block, layout(48), size).is_null());
                alloc.dealloc(block, layout(48));
                let block = alloc.alloc(layout(48));
                assert_eq!(internal_heap::contains(block as usize), is_own);
                alloc.dealloc(block, layout(48));
            }
        }
    };
    {
        let _own = internal_scope::scope();
        refuse_then_allocate(true);
    }
    refuse_then_allocate(false);
}
