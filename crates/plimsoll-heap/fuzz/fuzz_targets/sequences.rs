//! Sequences of operations that the fuzzer chooses, against the model of the tests: contents, alignments, and
//! after each operation the exact bytes and the relations of the statistics.
//!
//! In `crates/plimsoll-heap`: `cargo +nightly fuzz run sequences -- -max_total_time=60`.

#![no_main]

#[allow(dead_code, reason = "the random choices are for tests")]
#[path = "../../tests/program/model.rs"]
mod model;

use libfuzzer_sys::fuzz_target;
use model::{Choices, run};

/// Two bytes for each choice.
struct Bytes<'a>(&'a [u8]);

impl Choices for Bytes<'_> {
    fn next(&mut self) -> usize {
        let Some((choice, rest)) = self.0.split_first_chunk::<2>() else {
            return 7;
        };
        self.0 = rest;
        usize::from(u16::from_le_bytes(*choice)) * 5
    }
}

/// Takes so much memory that the heap uses huge pages, and keeps it.
fn keep_memory() {
    use std::alloc::{GlobalAlloc, Layout};
    static KEPT: std::sync::Once = std::sync::Once::new();
    KEPT.call_once(|| {
        let layout = Layout::from_size_align(16 << 20, 8).expect("a valid layout");
        // SAFETY: the layout has a size; the block is never freed.
        assert!(!unsafe { plimsoll_heap::Heap.alloc(layout) }.is_null());
    });
}

fuzz_target!(|bytes: &[u8]| {
    keep_memory();
    let before = plimsoll_heap::stats();
    // Behind the end of the bytes, all blocks that are left are freed.
    run(&mut Bytes(bytes), bytes.len() / 4, Some(1));
    let after = plimsoll_heap::stats();
    assert_eq!(after.heap_alloc, before.heap_alloc);
    if bytes.len() % 16 == 0 {
        use plimsoll::stats::Backend as _;
        plimsoll_heap::Heap.purge();
        let purged = plimsoll_heap::stats();
        model::check(&purged);
    }
});
