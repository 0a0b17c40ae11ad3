//! A collector that is a script: what it says, and what is made of that.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod child;
#[path = "collectors/figures.rs"]
mod figures;
#[path = "collectors/heap_cycle.rs"]
mod heap_cycle;
#[path = "collectors/misuse.rs"]
mod misuse;
mod pprof;
#[path = "collectors/requests.rs"]
mod requests;

use std::time::{Duration, Instant};

use plimsoll::MemStats;
use plimsoll::gc::{Cause, Collector};

/// A cycle with two pauses, without a sweep.
fn collect(collector: &Collector, cause: Cause) {
    let cycle = collector.begin(cause);
    let pause = cycle.pause();
    spin(Duration::from_micros(5));
    pause.stopped();
    spin(Duration::from_micros(5));
    pause.end();
    let termination = cycle.mark_termination();
    spin(Duration::from_micros(5));
    termination.finish(1 << 20, 2 << 20);
    drop(cycle.sweep());
    cycle.end();
}

/// Uses the processor for so long.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// What holds of every reading, in any program: cases 2 to 6 of Go's tests.
fn assert_relations(stats: &MemStats) {
    let parts = stats.heap_sys
        + stats.stack_sys
        + stats.mspan_sys
        + stats.mcache_sys
        + stats.buck_hash_sys
        + stats.gc_sys
        + stats.other_sys;
    assert_eq!(stats.sys, parts);
    assert_eq!(stats.heap_idle + stats.heap_inuse, stats.heap_sys);
    let newest = (stats.num_gc as usize + 255) % 256;
    assert_eq!(stats.last_gc, stats.pause_end[newest]);
    let of_ring: u64 = stats.pause_ns.iter().sum();
    if stats.num_gc < 256 {
        assert_eq!(stats.pause_total_ns, of_ring);
        let unused = stats.num_gc as usize..;
        assert!(stats.pause_ns[unused.clone()].iter().all(|&ns| ns == 0));
        assert!(stats.pause_end[unused].iter().all(|&end| end == 0));
    } else {
        assert!(stats.pause_total_ns >= of_ring);
    }
    assert!(stats.num_forced_gc <= stats.num_gc);
    assert!((0.0..=1.0).contains(&stats.gc_cpu_fraction));
}
