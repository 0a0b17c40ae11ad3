//! Case 47: operations that pause the program, and operations that do not.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::gc::{Cause, Collector};
use plimsoll::profile::{self, Format};
use plimsoll::{gc_stats, heap_stats, mem_stats};

use super::{Everything, child, collect};

const PAUSES: [&str; 4] = [
    "/sched/pauses/stopping/gc:seconds",
    "/sched/pauses/stopping/other:seconds",
    "/sched/pauses/total/gc:seconds",
    "/sched/pauses/total/other:seconds",
];

fn pauses() -> [u64; 4] {
    let all = Everything::now();
    PAUSES.map(|name| all.histogram(name).total())
}

#[test]
fn only_collections_pause_the_program_and_only_running_threads_are_interrupted() {
    let name =
        "pauses::only_collections_pause_the_program_and_only_running_threads_are_interrupted";
    child::run(name, "", || {
        let collector = Collector::register("script").unwrap();
        assert_eq!(pauses(), [0; 4]);
        for _ in 0..10 {
            Everything::now();
        }
        std::hint::black_box((mem_stats(), heap_stats(), gc_stats()));
        let written = |name: &str| {
            let profile = profile::lookup(name).unwrap();
            profile.write_to(&mut Vec::new(), Format::Pprof).unwrap();
        };
        let profiles = ["heap", "allocs", "block", "mutex", "threadcreate"];
        profiles.into_iter().for_each(written);
        assert_eq!(pauses(), [0; 4]);

        collect(&collector, Cause::Forced);
        assert_eq!(pauses(), [2, 0, 2, 0]);

        // Each profile of threads interrupts a thread that never waits at most once.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            for asked in 1..100 {
                written("goroutine");
                let [stopping, nothing, total, interruptions] = pauses();
                assert_eq!((stopping, nothing, total), (2, 0, 2));
                assert!(interruptions <= asked);
                if interruptions > 0 {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
            stop.store(true, Ordering::Relaxed);
            panic!("a thread that runs is read without being interrupted");
        });
    });
}
