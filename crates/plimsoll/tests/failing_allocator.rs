//! An allocator that fails on request. Plimsoll returns the failure to the caller, does not count
//! it, and changes no state.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use plimsoll::{HeapStats, heap_stats, profile};

struct Moody;

thread_local! {
    /// Whether requests of this thread are refused: other threads, and the report of a failed
    /// assertion, need their memory.
    static SAYS_NO: Cell<bool> = const { Cell::new(false) };
}

/// Block sizes that the test requests.
const REFUSED: std::ops::Range<usize> = 900_000..2_000_000;

fn refuses(size: usize) -> bool {
    (REFUSED.contains(&size) || (6500..7000).contains(&size)) && SAYS_NO.get()
}

// SAFETY: every method forwards to the system's allocator or returns a null pointer.
unsafe impl GlobalAlloc for Moody {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: `layout` has a size above zero, as `GlobalAlloc::alloc` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `System` made the block, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: `layout` has a size above zero, as `GlobalAlloc::alloc_zeroed` requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if refuses(new_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: `System` made the block, with this layout.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[global_allocator]
static ALLOC: plimsoll::Alloc<Moody> = plimsoll::Alloc::new(Moody);

/// The counts of the blocks that this test uses.
fn counts() -> [u64; 6] {
    let HeapStats {
        by_class, large, ..
    } = heap_stats();
    let class = by_class[plimsoll::size_class::of(6900).unwrap()];
    [
        large.mallocs,
        large.frees,
        large.malloc_bytes,
        large.free_bytes,
        class.mallocs,
        class.frees,
    ]
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Requests blocks that are refused between two that are not.
///
/// # Errors
/// The counts, where they are not those of the test's own blocks.
fn attempt(rate: usize) -> Result<(), String> {
    // SAFETY: valid layouts; each block is used with its own, and a refused `realloc` leaves it
    // unchanged.
    unsafe {
        let large = ALLOC.alloc(layout(1_000_000));
        let medium = ALLOC.alloc(layout(50_000));
        large.write_bytes(3, 1_000_000);
        medium.write_bytes(4, 50_000);
        SAYS_NO.set(true);
        let before = counts();
        let mut refused = true;
        for _ in 0..100 {
            refused &= ALLOC.alloc(layout(1_000_001)).is_null();
            refused &= ALLOC.alloc_zeroed(layout(1_000_001)).is_null();
            refused &= ALLOC.realloc(large, layout(1_000_000), 1_500_000).is_null();
            refused &= ALLOC.realloc(medium, layout(50_000), 1_500_000).is_null();
        }
        // A small block that is sampled does not come from the underlying allocator.
        if rate == 0 {
            refused &= ALLOC.alloc(layout(6900)).is_null();
        }
        let after_refusals = counts();
        SAYS_NO.set(false);
        assert!(refused);
        assert!((0..1_000_000).all(|at| large.add(at).read() == 3));
        assert!((0..50_000).all(|at| medium.add(at).read() == 4));
        ALLOC.dealloc(large, layout(1_000_000));
        ALLOC.dealloc(medium, layout(50_000));
        let mut expected = before;
        expected[1] += 2;
        expected[3] += 1_050_000;
        let after = counts();
        if (after_refusals, after) == (before, expected) {
            return Ok(());
        }
        Err(format!(
            "{before:?}, after refusals {after_refusals:?}, at the end {after:?}"
        ))
    }
}

/// A single test, since it concerns every allocation of the process.
#[test]
fn refusals_are_passed_on_and_nothing_is_counted() {
    for rate in [0, 1, 512 << 10] {
        profile::set_heap_rate(rate);
        // The counts include other threads, such as the test harness: what these allocate can disturb
        // an attempt, but a wrong count disturbs all.
        let mut failed = 0;
        while let Err(wrong) = attempt(rate) {
            failed += 1;
            assert!(failed < 10, "at a rate of {rate}: {wrong}");
        }
    }
    // The sampled blocks are no longer in use: a block whose `realloc` was refused kept its sample.
    let mut text = Vec::new();
    profile::lookup("heap")
        .unwrap()
        .write_to(&mut text, profile::Format::Text)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    for size in [1_000_000u64, 50_000] {
        let is_of_size = |row: &&str| {
            let allocated = row
                .split_once(" [")
                .and_then(|(_, rest)| rest.split_once("] @"));
            let numbers = allocated.and_then(|(numbers, _)| numbers.split_once(": "));
            let numbers = numbers.map(|(objects, bytes)| (objects.parse(), bytes.parse()));
            matches!(numbers, Some((Ok::<u64, _>(objects), Ok::<u64, _>(bytes)))
                if objects > 0 && bytes == objects * size)
        };
        let rows: Vec<_> = text.lines().filter(is_of_size).collect();
        assert!(!rows.is_empty(), "{size}: {text}");
        assert!(
            rows.iter().all(|row| row.starts_with("0: 0 [")),
            "{size}: {text}"
        );
    }
}
