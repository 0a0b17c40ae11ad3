//! Snapshots beside threads that allocate.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use plimsoll_heap::Heap;

use crate::model::check;
use crate::must_succeed;

/// Sizes of all kinds: small, aligned, large.
const SIZES: [usize; 8] = [8, 24, 100, 500, 1025, 9000, 32_768, 50_000];

#[test]
fn no_snapshot_contradicts_itself() {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let done = &done;
            scope.spawn(move || {
                let mut live: Vec<Vec<u8>> = Vec::new();
                let mut round = thread;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    live.push(Vec::with_capacity(SIZES[round % SIZES.len()]));
                    if live.len() > 100 {
                        live.swap_remove(round * 7919 % live.len());
                    }
                }
            });
        }
        let mut last = plimsoll_heap::stats();
        for _ in 0..3000 {
            let stats = plimsoll_heap::stats();
            check(&stats);
            for (now, before) in stats.by_class.iter().zip(&last.by_class) {
                assert!(now.mallocs >= before.mallocs && now.frees >= before.frees);
            }
            last = stats;
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A thread allocates and another one frees: the blocks of a class that no other code uses are never
/// more than the channel's places and the two in hands.
#[test]
fn blocks_that_pass_between_threads_are_counted_once() {
    must_succeed(
        "snapshots::blocks_that_pass_between_threads_are_counted_once",
        || {
            const PLACES: usize = 50;
            const SIZE: usize = 27_000;
            let class = |stats: &plimsoll_heap::HeapStats| {
                *stats
                    .by_class
                    .iter()
                    .find(|class| class.size as usize >= SIZE)
                    .unwrap()
            };
            let before = class(&plimsoll_heap::stats());
            let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(PLACES);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for _ in 0..200_000 {
                        sender.send(Vec::with_capacity(SIZE)).unwrap();
                    }
                });
                let receiver = scope.spawn(move || receiver.iter().for_each(drop));
                while !receiver.is_finished() {
                    let now = class(&plimsoll_heap::stats());
                    let live = (now.mallocs - before.mallocs) - (now.frees - before.frees);
                    assert!(live <= PLACES as u64 + 2, "{live}");
                }
            });
            let after = class(&plimsoll_heap::stats());
            assert_eq!(after.mallocs - before.mallocs, 200_000);
            assert_eq!(after.frees - before.frees, 200_000);
        },
    );
}

#[test]
fn concurrent_readers_each_receive_one_instant() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for size in 1..300 {
                    let layout = Layout::from_size_align(size, 8).unwrap();
                    // SAFETY: the layout is valid, and the block is freed with it.
                    unsafe {
                        let block = Heap.alloc(layout);
                        check(&plimsoll_heap::stats());
                        Heap.dealloc(block, layout);
                    }
                }
            });
        }
    });
}
