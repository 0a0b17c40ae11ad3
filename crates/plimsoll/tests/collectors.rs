//! A collector that is a script: what it says, and what is made of that.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod child;
#[path = "collectors/figures.rs"]
mod figures;
#[path = "collectors/forks.rs"]
mod forks;
#[path = "collectors/heap_cycle.rs"]
mod heap_cycle;
#[path = "collectors/misuse.rs"]
mod misuse;
mod pprof;
mod relations;
#[path = "collectors/requests.rs"]
mod requests;

use std::time::{Duration, Instant};

use plimsoll::gc::{Cause, Collector};
use relations::assert_relations;

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
