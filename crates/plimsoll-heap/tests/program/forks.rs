//! Children of a process whose threads allocate.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::check;
use crate::must_succeed;

#[test]
fn a_child_allocates_whatever_the_parents_threads_did() {
    must_succeed(
        "forks::a_child_allocates_whatever_the_parents_threads_did",
        || {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for thread in 1..4 {
                    let done = &done;
                    scope.spawn(move || {
                        let mut live = Vec::new();
                        for round in 0_usize.. {
                            if done.load(Ordering::Relaxed) {
                                return;
                            }
                            live.push(vec![thread as u8; round * 37 % 70_000]);
                            if live.len() > 64 {
                                live.clear();
                                check(&plimsoll_heap::stats());
                            }
                        }
                    });
                }
                for _ in 0..50 {
                    // SAFETY: the child uses this heap and system calls only, and then ends.
                    let child = unsafe { libc::fork() };
                    assert!(child >= 0);
                    if child == 0 {
                        let mut bytes = 0;
                        for size in (1..40_000).step_by(97) {
                            bytes += vec![1_u8; size].len();
                        }
                        check(&plimsoll_heap::stats());
                        // SAFETY: ends the child without the parent's handlers.
                        unsafe { libc::_exit(i32::from(bytes == 0)) };
                    }
                    let mut status = 0;
                    // SAFETY: the status is writable.
                    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                    assert_eq!(status, 0);
                }
                done.store(true, Ordering::Relaxed);
            });
        },
    );
}
