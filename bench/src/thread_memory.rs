//! The memory of a program, and the memory that each of many threads adds.

use crate::crew::Crew;
use crate::process_memory::Status;

/// The number of threads, if the system permits as many.
const THREADS: usize = 1000;

/// Starts threads and makes each allocate and free twice. Calls `between` after each time. Prints
/// the anonymous resident memory before, in KiB, and its growth for each thread, in bytes.
pub fn measure(between: impl Fn()) {
    let status = Status::open();
    let at_start = status.kib("RssAnon");
    let crew = Crew::start(THREADS, || drop(std::hint::black_box(Box::new([1u8; 64]))));
    crew.turn();
    between();
    crew.turn();
    between();
    let grown = status.kib("RssAnon").saturating_sub(at_start);
    assert!(crew.size() > 0, "no thread was measured");
    println!("{at_start} {}", (grown << 10) as f64 / crew.size() as f64);
}
