//! Checks of the page figures that apply to every allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::{MemStats, mem_stats};

use crate::relations::{Everything, Until, assert_agreement, assert_relations};

pub const MIB: u64 = 1 << 20;

/// Returns a vector of `size` bytes, all of them written to.
pub fn touched(size: usize) -> Vec<u8> {
    black_box(vec![0x5a; size])
}

/// Returns the resident bytes of the process, as the system reports them.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm is readable");
    let pages = statm
        .split(' ')
        .nth(1)
        .expect("the second field is the resident size");
    // SAFETY: `sysconf` has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.parse::<u64>().expect("a number") * page
}

/// Allocates and frees blocks of all sizes until `stop`; returns the number of rounds.
pub fn churn(seed: u64, stop: &AtomicBool) -> u64 {
    let (mut random, mut rounds) = (seed + 1, 0);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Each magnitude is equally likely, up to 4 MiB.
        let size = (1 << ((random >> 40) % 23)) + (random >> 20) as usize % 64;
        kept.push(Vec::with_capacity(size));
        if kept.len() > 40 || size > 1 << 20 {
            kept.swap_remove((random >> 30) as usize % kept.len());
        }
        if random >> 56 == 0 {
            kept.clear();
        }
        rounds += 1;
    }
    rounds
}

/// Reads the statistics while four threads allocate, at least `at_least` times and until the committed
/// bytes of the allocator's pages had `values` different values. Checks the general relations of each
/// reading. Returns the number of readings, and of those with slack.
///
/// Panics if so many values do not come within a million readings.
pub fn read_under_load(at_least: usize, values: usize) -> (usize, usize) {
    let stop = AtomicBool::new(false);
    let (mut readings, mut with_slack) = (0, 0);
    let mut committed = BTreeSet::new();
    std::thread::scope(|scope| {
        let until = Until(&stop);
        let threads = [0, 1, 2, 3].map(|seed| {
            let stop = &stop;
            scope.spawn(move || churn(seed, stop))
        });
        while readings < at_least || committed.len() < values {
            assert!(readings < 1_000_000, "{committed:?}");
            readings += 1;
            let stats = mem_stats();
            assert_relations(&stats);
            committed.insert(stats.pages.committed.bytes);
            with_slack += usize::from(stats.heap_slack > 0);
        }
        drop(until);
        for thread in threads {
            assert!(thread.join().unwrap() > 0);
        }
    });
    (readings, with_slack)
}

/// Asserts the guarantees of `GlobalAlloc` for sizes and alignments of all magnitudes: alignment,
/// zeroed memory, and contents preserved by reallocation.
pub fn blocks_have_the_requested_size_and_alignment(alloc: &impl GlobalAlloc) {
    for size_log in 0..25 {
        for align_log in 0..24 {
            for size in [1 << size_log, (1 << size_log) + 5] {
                let layout = Layout::from_size_align(size, 1 << align_log).unwrap();
                // SAFETY: the layout is valid, each block is used with its own layout, and freed
                // once. Sizes of reallocations are not 0.
                unsafe {
                    let used = alloc.alloc(layout);
                    assert!(is_right(used, layout), "{layout:?}");
                    used.write_bytes(0xa5, size.min(9000));
                    alloc.dealloc(used, layout);
                    let block = alloc.alloc_zeroed(layout);
                    assert!(is_right(block, layout), "{layout:?}");
                    let start = std::slice::from_raw_parts_mut(block, size.min(9000));
                    assert!(start.iter().all(|&byte| byte == 0), "{layout:?}");
                    start.fill(7);
                    let kept = start.len();
                    let new_size = size * 3 / 2 + 1;
                    let moved = alloc.realloc(block, layout, new_size);
                    let layout = Layout::from_size_align(new_size, layout.align()).unwrap();
                    assert!(is_right(moved, layout), "{layout:?}");
                    let start = std::slice::from_raw_parts(moved, kept);
                    assert!(start.iter().all(|&byte| byte == 7), "{layout:?}");
                    let shrunk = alloc.realloc(moved, layout, kept.div_ceil(2));
                    let layout = Layout::from_size_align(kept.div_ceil(2), layout.align()).unwrap();
                    assert!(is_right(shrunk, layout), "{layout:?}");
                    assert_eq!(*shrunk.add(layout.size() - 1), 7);
                    alloc.dealloc(shrunk, layout);
                }
            }
        }
    }
}

fn is_right(block: *mut u8, layout: Layout) -> bool {
    !block.is_null() && block as usize % layout.align() == 0
}

/// Runs Go's case 51: no class of memory wraps around while blocks of 1 MiB come and go.
pub fn metrics_agree_while_large_blocks_churn() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _until = Until(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(black_box(Vec::<u8>::with_capacity(1 << 20)));
                }
            });
        }
        let mut all = Everything::default();
        for _ in 0..1000 {
            all.read();
            assert_agreement(&all);
        }
    });
}

/// Runs Go's case 10: freed memory is returned to the system on request. Returns the readings
/// before and after.
pub fn free_os_memory_gives_back() -> (MemStats, MemStats) {
    let blocks: Vec<_> = (0..512).map(|_| touched(64 << 10)).collect();
    let (before, resident_before) = (mem_stats(), resident());
    drop(blocks);
    plimsoll::free_os_memory();
    let (after, resident_after) = (mem_stats(), resident());
    let given_back = resident_before.saturating_sub(resident_after);
    assert!(
        given_back >= 16 * MIB,
        "{given_back} of 32 MiB were released"
    );
    (before, after)
}
