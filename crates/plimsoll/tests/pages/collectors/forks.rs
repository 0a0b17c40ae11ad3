//! A child of a fork has its parent's collectors, with their state.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::gc::{Cause, Collector};
use plimsoll::{gc_stats, mem_stats};

use super::relations::Until;
use super::{assert_relations, child, collect};

/// Forks, and runs `work` in the child, which must end within 60 seconds.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the child makes only calls that the library allows after a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        plimsoll_testkit::child::kill_after_a_minute();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0, "the child failed, or did not get on");
}

/// Holds whatever the collectors' threads are doing at the moment of the fork.
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
                    // The fork may have interrupted a cycle and a pause, which then never end.
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
