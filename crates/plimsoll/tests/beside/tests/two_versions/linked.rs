//! A program that contains two versions. The first one is the global allocator and interposes functions of the C
//! library. The second one counts only the blocks that the program allocates with it.

mod figures;
mod work;

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard};

use figures::{assert_cpu, assert_kept, assert_running, events};
use work::SIZE;

#[global_allocator]
static FIRST: first::Alloc = first::Alloc::system();

static SECOND: second::Alloc = second::Alloc::system();

const BLOCKS_OF_FIRST: usize = 1000;
const BLOCKS_OF_SECOND: usize = 700;
const WAITS: usize = 20;

#[inline(never)]
fn keeps_in_first(kept: &mut Vec<Vec<u8>>) {
    work::keep(kept, BLOCKS_OF_FIRST);
}

#[inline(never)]
fn keeps_in_second(kept: &mut Vec<*mut u8>) {
    let layout = Layout::from_size_align(SIZE, 1).expect("a layout");
    for _ in 0..BLOCKS_OF_SECOND {
        // SAFETY: the size is not zero.
        let block = unsafe { SECOND.alloc(layout) };
        assert!(!block.is_null());
        kept.push(block);
    }
}

#[inline(never)]
fn waits_here(lock: &Mutex<()>) {
    drop(lock.lock().expect("no thread panicked"));
}

#[inline(never)]
fn releases_here(guard: MutexGuard<'_, ()>) {
    drop(guard);
}

/// Returns the allocations that each version has counted.
fn mallocs() -> [u64; 2] {
    let [first_class, second_class] = [first::size_class::of(SIZE), second::size_class::of(SIZE)];
    [
        first::heap_stats().by_class[first_class.expect("a size with a class")].mallocs,
        second::heap_stats().by_class[second_class.expect("a size with a class")].mallocs,
    ]
}

fn main() {
    let first = first::start();
    let second = second::start();
    let addresses = [first.http_address(), second.http_address()];
    let pages = addresses.map(|address| address.expect("the settings request pages"));
    assert_ne!(pages[0], pages[1]);

    let before = mallocs();
    let mut of_first = Vec::with_capacity(BLOCKS_OF_FIRST);
    keeps_in_first(&mut of_first);
    let mut of_second = Vec::with_capacity(BLOCKS_OF_SECOND);
    keeps_in_second(&mut of_second);
    let after = mallocs();
    assert_eq!(after[0] - before[0], BLOCKS_OF_FIRST as u64);
    assert_eq!(after[1] - before[1], BLOCKS_OF_SECOND as u64);
    assert_kept(pages[0], "keeps_in_first", BLOCKS_OF_FIRST);
    assert_kept(pages[0], "keeps_in_second", 0);
    assert_kept(pages[1], "keeps_in_first", 0);
    assert_kept(pages[1], "keeps_in_second", BLOCKS_OF_SECOND);

    work::contend(WAITS, waits_here, releases_here);
    for (page, function) in [("block", "waits_here"), ("mutex", "releases_here")] {
        assert_eq!(events(pages[0], page, function), WAITS as i64, "{page}");
        // It interposes nothing.
        assert_eq!(events(pages[1], page, function), 0, "{page}");
    }
    assert_running(pages);
    assert_cpu(pages);

    let layout = Layout::from_size_align(SIZE, 1).expect("a layout");
    for block in of_second {
        // SAFETY: a block of this allocator, with its layout.
        unsafe { SECOND.dealloc(block, layout) };
    }
    drop((first, second));
}
