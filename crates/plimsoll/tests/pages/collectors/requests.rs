//! Requested collections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll::gc::{self, Cause, Collector};
use plimsoll::{http, mem_stats};

use super::relations::Until;
use super::{child, collect};

/// Runs `work` while another thread collects on each request.
fn beside_a_collector(work: impl FnOnce(&Collector)) {
    let collector = Collector::register("script").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if collector.is_wanted() {
                    collect(&collector, Cause::Forced);
                }
                std::thread::yield_now();
            }
        });
        let _ended = Until(&stop);
        work(&collector);
    });
}

/// Case 26.
#[test]
fn a_requested_collection_is_made() {
    child::run("requests::a_requested_collection_is_made", "", || {
        beside_a_collector(|collector| {
            for number in 1..=20 {
                assert!(gc::collect(Duration::from_secs(60)));
                assert!(!collector.is_wanted());
                let stats = mem_stats();
                assert_eq!((stats.num_gc, stats.num_forced_gc), (number, number));
            }
            let page = http::handle("GET", "/debug/pprof/heap", "gc=1");
            assert_eq!((page.status, mem_stats().num_gc), (200, 21));
            let page = http::handle("GET", "/debug/pprof/allocs", "gc=1");
            assert_eq!(
                (page.status, mem_stats().num_gc),
                (200, 21),
                "only of the heap"
            );
        });
    });
}

#[test]
fn only_a_whole_forced_cycle_that_began_after_is_an_answer() {
    let name = "requests::only_a_whole_forced_cycle_that_began_after_is_an_answer";
    child::run(name, "", || {
        let collector = Collector::register("script").unwrap();
        let early = collector.begin(Cause::Forced);
        assert!(!gc::collect(Duration::from_millis(5)), "no thread collects");
        assert!(collector.is_wanted());
        early.mark_termination().finish(0, 0);
        early.end();
        assert!(collector.is_wanted(), "it began before");
        collect(&collector, Cause::Automatic);
        assert!(collector.is_wanted(), "it was not forced");
        drop(collector.begin(Cause::Forced));
        assert!(collector.is_wanted(), "it was abandoned");
        collect(&collector, Cause::Forced);
        assert!(!collector.is_wanted());
        let late = Collector::register("late").unwrap();
        assert!(!late.is_wanted(), "the collector was not registered");
    });
}

#[test]
fn a_request_to_collectors_can_be_read_back() {
    child::run(
        "requests::a_request_to_collectors_can_be_read_back",
        "",
        || {
            assert_eq!((gc::percent(), gc::memory_limit()), (100, i64::MAX as u64));
            assert_eq!(gc::set_percent(-1), 100);
            assert_eq!(gc::set_percent(50), -1);
            assert_eq!(gc::set_memory_limit(512 << 20), i64::MAX as u64);
            assert_eq!(gc::set_memory_limit(u64::MAX), 512 << 20);
            assert_eq!((gc::percent(), gc::memory_limit()), (50, i64::MAX as u64));
        },
    );
}
