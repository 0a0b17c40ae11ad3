//! The memory that the heap takes and returns.

use crate::model::check;
use crate::{in_limited_process, must_succeed};

#[test]
fn threads_that_end_leave_their_memory_to_others() {
    must_succeed(
        "memory::threads_that_end_leave_their_memory_to_others",
        || {
            let run = || {
                let work = || {
                    drop(
                        (0..100)
                            .map(|size| vec![1_u8; 100 * size])
                            .collect::<Vec<_>>(),
                    )
                };
                std::thread::spawn(work).join().unwrap();
            };
            (0..100).for_each(|_| run());
            let before = plimsoll_heap::stats();
            (0..1000).for_each(|_| run());
            let after = plimsoll_heap::stats();
            check(&after);
            // A mebibyte more than before, at most: the lists of another processor.
            assert!(
                after.heap_sys <= before.heap_sys + (8 << 20),
                "{} {}",
                before.heap_sys,
                after.heap_sys
            );
        },
    );
}

/// Threads that live at once, more than lists of threads have slots where the system has no restartable
/// sequences.
#[test]
fn ten_thousand_threads_allocate_at_once() {
    must_succeed("memory::ten_thousand_threads_allocate_at_once", || {
        const THREADS: usize = 10_000;
        let all = std::sync::Arc::new(std::sync::Barrier::new(THREADS));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let all = all.clone();
                let work = move || {
                    let block = vec![thread as u8; thread % 3000 + 1];
                    all.wait();
                    block.iter().map(|&byte| usize::from(byte)).sum::<usize>()
                        == block.len() * (thread % 256)
                };
                std::thread::Builder::new()
                    .stack_size(32 << 10)
                    .spawn(work)
                    .unwrap()
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        check(&plimsoll_heap::stats());
    });
}

/// Address space that does not suffice for the lists: all operations use the central lists.
#[test]
fn a_process_with_little_address_space_allocates_without_lists() {
    let name = "memory::a_process_with_little_address_space_allocates_without_lists";
    let output = in_limited_process(name, 1 << 30, || {
        let before = plimsoll_heap::stats();
        let blocks: Vec<_> = (1..20_000).map(|size| vec![1_u8; size % 2000]).collect();
        let after = plimsoll_heap::stats();
        check(&after);
        assert!(after.mallocs >= before.mallocs + 19_000);
        let sum: usize = blocks.iter().map(Vec::len).sum();
        assert!(after.heap_alloc - before.heap_alloc >= sum as u64);
    });
    if let Some(output) = output {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}", output.status);
    }
}
