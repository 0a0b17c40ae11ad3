//! The heap profile over it.

use std::alloc::{GlobalAlloc, Layout};

use crate::ALLOC;

/// Objects in use and allocated, from the first line of the text of the heap profile.
fn objects() -> (i64, i64) {
    let mut text = Vec::new();
    plimsoll::profile::lookup("heap")
        .expect("the heap profile exists")
        .write_to(&mut text, plimsoll::profile::Format::Text)
        .expect("a vector takes everything");
    let text = String::from_utf8(text).expect("the text is UTF-8");
    // heap profile: 3: 4096 [5: 6000] @ heap/1
    let numbers: Vec<i64> = text
        .lines()
        .next()
        .expect("the first line exists")
        .split(|byte: char| !byte.is_ascii_digit())
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().expect("digits"))
        .collect();
    (numbers[0], numbers[2])
}

#[test]
fn every_block_is_sampled_at_rate_one_and_none_is_counted() {
    const BLOCKS: i64 = 900;
    plimsoll::profile::set_heap_rate(1);
    let sizes = || (0..BLOCKS as usize).map(|at| 1 + at * at % 70_000);
    let (in_use_before, allocated_before) = objects();
    // SAFETY: valid layouts; each block is reallocated and freed with the layout that it has.
    unsafe {
        let mut blocks: Vec<(*mut u8, Layout)> = Vec::with_capacity(BLOCKS as usize);
        for size in sizes() {
            let layout = Layout::from_size_align(size, 1 << (size % 6)).expect("a valid layout");
            let block = ALLOC.alloc_zeroed(layout);
            assert!(!block.is_null() && block.addr() % layout.align() == 0);
            blocks.push((block, layout));
        }
        let (in_use, allocated) = objects();
        assert!(in_use - in_use_before >= BLOCKS);
        assert!(allocated - allocated_before >= BLOCKS);
        for (block, layout) in &mut blocks {
            block.write(7);
            let size = layout.size() * 2 % 70_000 + 1;
            *block = ALLOC.realloc(*block, *layout, size);
            assert_eq!(block.read(), 7);
            *layout = Layout::from_size_align(size, layout.align()).expect("a valid layout");
        }
        let (in_use_moved, allocated_moved) = objects();
        assert!(allocated_moved - allocated >= BLOCKS);
        for (block, layout) in blocks {
            ALLOC.dealloc(block, layout);
        }
        let (in_use_last, _) = objects();
        assert!(in_use_moved - in_use_last >= BLOCKS);
        // The test's own thread and profiles keep a few blocks.
        assert!((in_use_last - in_use_before).abs() < BLOCKS / 4);
    }
    let stats = plimsoll::heap_stats();
    assert_eq!((stats.mallocs, stats.frees), (0, 0));
}
