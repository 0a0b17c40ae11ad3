//! Writes the heap profile of the containing program repeatedly, and measures time and memory.
//!
//! Another thread finds the peaks by reading the figures about every 50 microseconds. *Own* is
//! Plimsoll's own heap as the program can read it (`other_sys`). *Anonymous* is memory of the
//! process that no file backs. Both are increases over the state before.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll::profile::{self, Detail, Format};

use super::clock;
use super::process_memory::Status;
use super::quantiles::median;

/// Samples all allocations of `work`, and then measures profiles of them.
pub(crate) fn measure(rounds: usize, work: &[fn()]) {
    let rate = profile::set_heap_rate(1);
    for work in work {
        work();
    }
    profile::set_heap_rate(0);
    describe();
    println!("\nmedians of {rounds} rounds; peaks are the largest of all");
    println!("| names | ms | own peak KiB | anonymous peak KiB |\n|---|---|---|---|");
    // The cheapest first, so that caches filled by one do not help the next.
    for detail in [Detail::Names, Detail::Full] {
        row(detail, rounds.max(2));
    }
    println!("\ntargets: own peaks <= 65536 KiB; Names about 10 ms, own peak < 1024 KiB");
    profile::set_heap_rate(rate);
}

/// Prints the sizes of the program and its profile.
fn describe() {
    let program = std::env::current_exe().and_then(std::fs::metadata);
    let bytes = program.expect("this program has a file").len();
    let records = profile::lookup("heap").expect("built in").count();
    assert!(records > 0, "no stack was recorded");
    let mib = bytes as f64 / f64::from(1 << 20);
    println!("a program of {mib:.0} MiB; {records} records");
}

fn row(detail: Detail, rounds: usize) {
    let heap = profile::lookup("heap").expect("built in");
    let status = Status::open();
    let mut times = Vec::new();
    let mut most = [0; 2];
    let mut length = 0;
    for _ in 0..rounds {
        // From the second round on, the output buffer is large enough, so that its growth is not
        // measured.
        let is_first = length == 0;
        let mut bytes = vec![1_u8; 2 * length];
        bytes.clear();
        let before = memory(&status);
        let (took, peak) = beside_observer(|| {
            let start = clock::wall();
            let written = heap.write_with(&mut bytes, Format::Pprof, detail);
            written.expect("writing to memory cannot fail");
            (clock::wall() - start) as f64 / 1e6
        });
        let [own, anonymous] = [0, 1].map(|at| peak[at].saturating_sub(before[at]));
        most = larger(most, [own, if is_first { 0 } else { anonymous }]);
        length = bytes.len();
        times.push(took);
    }
    let (middle, [own, anonymous]) = (median(&times), most);
    println!("| {detail:?} | {middle:.1} | {own} | {anonymous} |");
}

/// Returns the own and the anonymous memory in KiB.
fn memory(status: &Status) -> [u64; 2] {
    [plimsoll::mem_stats().other_sys >> 10, status.kib("RssAnon")]
}

fn larger(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0].max(other[0]), one[1].max(other[1])]
}

/// Runs `work` while another thread reads the memory; returns the peak.
fn beside_observer<R>(work: impl FnOnce() -> R) -> (R, [u64; 2]) {
    let over = AtomicBool::new(false);
    let watching = Barrier::new(2);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let status = Status::open();
            let mut most = memory(&status);
            watching.wait();
            while !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(50));
                most = larger(most, memory(&status));
            }
            most
        });
        watching.wait();
        let result = work();
        over.store(true, Ordering::Release);
        (result, observer.join().expect("no thread panics"))
    })
}
