//! Frees that are errors of the program.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll_heap::Heap;

use crate::in_own_process;

/// Calls `act` in a separate process, which must abort with a message that contains one of
/// `texts`.
fn must_abort(name: &str, texts: &[&str], act: impl FnOnce()) {
    let Some(output) = in_own_process(name, act) else {
        return;
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the process went on");
    assert!(
        message.contains("plimsoll-heap: invalid free of 0x")
            && texts.iter().any(|text| message.contains(text)),
        "{message}"
    );
}

/// Frees blocks of a layout, and one pointer that is none among them. So many others are freed that the list
/// returns it to the spans.
fn free_among_others(layout: Layout, no_block: impl FnOnce(*mut u8) -> *mut u8) {
    // SAFETY: the layout is valid, and each block is freed with it, once. `no_block` makes the error of
    // the test, at which the heap aborts the process.
    unsafe {
        let blocks: Vec<_> = (0..2000).map(|_| Heap.alloc(layout)).collect();
        for &block in &blocks[..1000] {
            Heap.dealloc(block, layout);
        }
        Heap.dealloc(no_block(blocks[999]), layout);
        for &block in &blocks[1000..] {
            Heap.dealloc(block, layout);
        }
    }
}

#[test]
fn a_second_free_is_recognised_when_the_list_returns_it() {
    must_abort(
        "faults::a_second_free_is_recognised_when_the_list_returns_it",
        // A span that became empty has returned to the page heap.
        &["freed twice", "not in a span of its size"],
        || free_among_others(Layout::from_size_align(3000, 8).unwrap(), |block| block),
    );
}

#[test]
fn memory_within_a_block_is_no_block() {
    must_abort(
        "faults::memory_within_a_block_is_no_block",
        &["not the start of a block", "not in a span of its size"],
        || {
            let layout = Layout::from_size_align(3000, 8).unwrap();
            free_among_others(layout, |block| block.wrapping_add(8));
        },
    );
}

#[test]
fn memory_of_another_kind_is_no_large_block() {
    must_abort(
        "faults::memory_of_another_kind_is_no_large_block",
        &["not a large block"],
        || {
            let layout = Layout::from_size_align(100_000, 8).unwrap();
            let mut local = [0_u8; 8];
            // SAFETY: this is the error that the test makes: the heap aborts the process.
            unsafe { Heap.dealloc(local.as_mut_ptr(), layout) };
        },
    );
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    for size in [isize::MAX as usize - 4096, 1 << 50, 1 << 41] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the layout is valid.
        assert!(unsafe { Heap.alloc(layout) }.is_null(), "{size}");
    }
    assert!(Vec::<u8>::new().try_reserve_exact(1 << 45).is_err());
}
