//! Named metrics: Go's tests of `runtime/metrics`, and Plimsoll's other promises.

#[path = "metrics/agreement.rs"]
mod agreement;
#[path = "metrics/churn.rs"]
mod churn;
#[path = "metrics/names.rs"]
mod names;
#[path = "metrics/pauses.rs"]
mod pauses;

use plimsoll::gc::{Cause, Collector, CpuClass};
use plimsoll_checks::relations;
use plimsoll_testkit::child;
use relations::Everything;

/// Runs a whole cycle with a pause, a mark termination, and some work.
fn collect(collector: &Collector, cause: Cause) {
    let cycle = collector.begin(cause);
    let pause = cycle.pause();
    pause.stopped();
    pause.end();
    let mut termination = cycle.mark_termination();
    termination.scanned(3 << 20, 2 << 10, 1 << 10);
    termination.finish(3 << 20, 6 << 20);
    drop(cycle.sweep());
    cycle.end();
    drop(collector.work(CpuClass::MarkDedicated));
}
