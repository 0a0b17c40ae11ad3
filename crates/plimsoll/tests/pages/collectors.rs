//! A scripted collector: its reports, and the statistics that follow from them.

#[path = "collectors/figures.rs"]
mod figures;
#[path = "collectors/forks.rs"]
mod forks;
#[path = "collectors/heap_cycle.rs"]
mod heap_cycle;
#[path = "collectors/misuse.rs"]
mod misuse;
#[path = "collectors/requests.rs"]
mod requests;

use plimsoll_checks::relations;
use plimsoll_testkit::child;
use std::time::{Duration, Instant};

use plimsoll::gc::{Cause, Collector};
use relations::assert_relations;

/// Runs a cycle with two pauses and no work in its sweep.
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

/// Spins for this time.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}
