//! A child has the collectors that its parent had, as they were.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::gc::{Cause, Collector};
use plimsoll::{gc_stats, mem_stats};

use super::relations::Until;
use super::{assert_relations, child, collect};

/// Forks, and runs `work` in the child, which must not take longer than 30 seconds.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: what the child does is what the library says it can.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: always callable.
        unsafe { libc::alarm(60) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed, or did not get on");
}

/// Whatever the collectors' threads are about when somebody forks.
#[test]
fn a_child_of_a_process_that_collects_reads_and_collects_on() {
    let name = "forks::a_child_of_a_process_that_collects_reads_and_collects_on";
    child::run(name, "heap_rate=1", || {
        let collector = Collector::register("script").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    collect(&collector, Cause::Automatic);
                    let cycle = collector.begin(Cause::Forced);
                    for _ in 0..20 {
                        cycle.pause().end();
                    }
                }
            });
            let _ended = Until(&stop);
            let mut last = 0;
            for _ in 0..100 {
                in_a_child(|| {
                    let stats = mem_stats();
                    assert_relations(&stats);
                    assert!(u64::from(stats.num_gc) >= last);
                    // It may have been in the middle of a cycle, and of a pause, which nobody ends.
                    let pauses = collector.stats().pauses;
                    collect(&collector, Cause::Forced);
                    assert_eq!(collector.stats().pauses, pauses + 2);
                    let after = mem_stats();
                    assert_relations(&after);
                    assert_eq!(after.num_gc, stats.num_gc + 1);
                    let heap = plimsoll::profile::lookup("heap").unwrap();
                    assert!(heap.count() > 0);
                });
                last = gc_stats().num_gc;
            }
        });
    });
}
