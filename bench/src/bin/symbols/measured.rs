//! Writes the heap profile of the containing program repeatedly, and measures time and memory.
//!
//! Another thread finds the peaks by reading the figures about every 50 microseconds. *Own* is
//! Plimsoll's own heap as the program can read it (`other_sys`). *Anonymous* is memory of the
//! process that no file backs. *Resident* also includes pages of mapped files, which belong to the
//! system's cache. All are increases over the state before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll::profile::{self, Detail, Format};

use super::clock;
use super::process_memory::{self, Status};
use super::quantiles::median;

/// Samples all allocations of `work`, and then measures profiles of them.
pub(crate) fn measure(rounds: usize, work: &[fn()]) {
    let rate = profile::set_heap_rate(1);
    for work in work {
        work();
    }
    profile::set_heap_rate(0);
    describe();
    println!("\nmedians of {rounds} rounds; peaks and what is left are the largest of all");
    println!(
        "| names | format | first ms | ms | KiB | own peak KiB | anonymous peak KiB | resident peak KiB | own left KiB |\n|---|---|---|---|---|---|---|---|---|"
    );
    // The cheapest first, so that caches filled by one do not help the next.
    for detail in [Detail::Addresses, Detail::Names, Detail::Full] {
        for format in [Format::Pprof, Format::Text] {
            row(format, detail, rounds);
        }
    }
    println!("\ntargets: own peaks <= 65536 KiB; Names about 10 ms, own peak < 1024 KiB");
    profile::set_heap_rate(rate);
}

/// Prints the sizes of the program and its profile.
fn describe() {
    let program = std::env::current_exe().and_then(std::fs::metadata);
    let mut text = Vec::new();
    write(&mut text, Format::Text, Detail::Addresses);
    let text = String::from_utf8_lossy(&text);
    let rows = text.lines().skip(1).filter_map(|row| row.split_once(" @ "));
    let mut addresses: Vec<&str> = rows.flat_map(|(_, stack)| stack.split(' ')).collect();
    let (records, frames) = (count(), addresses.len());
    assert!(frames > 0, "no stack was recorded: {text}");
    addresses.sort_unstable();
    addresses.dedup();
    println!(
        "a program of {:.0} MiB; {records} records with {frames} frames, {} distinct addresses",
        program.map_or(0.0, |program| program.len() as f64 / f64::from(1 << 20)),
        addresses.len(),
    );
}

fn count() -> usize {
    profile::lookup("heap").expect("built in").count()
}

fn write(bytes: &mut Vec<u8>, format: Format, detail: Detail) {
    let heap = profile::lookup("heap").expect("built in");
    let written = heap.write_with(bytes, format, detail);
    written.expect("writing to memory cannot fail");
}

fn row(format: Format, detail: Detail, rounds: usize) {
    let status = Status::open();
    let mut times = Vec::new();
    let mut most = Memory::default();
    let (mut resident, mut left, mut length) = (0, 0, 0);
    for round in 0..rounds.max(2) {
        // From the second round on, the output buffer is large enough, so that its growth is not
        // measured.
        let mut bytes = vec![1; 2 * length];
        bytes.clear();
        let can_see_peak = process_memory::forget_peak();
        let before = Memory::read(&status);
        let resident_before = status.kib("VmRSS");
        let (took, peak) = beside_observer(|| {
            let start = clock::wall();
            write(&mut bytes, format, detail);
            (clock::wall() - start) as f64 / 1e6
        });
        let peak = peak.less(before);
        most.own = most.own.max(peak.own);
        if round > 0 {
            most.anonymous = most.anonymous.max(peak.anonymous);
            if can_see_peak {
                resident = resident.max(status.kib("VmHWM").saturating_sub(resident_before));
            }
        }
        left = left.max(Memory::read(&status).own.saturating_sub(before.own));
        length = bytes.len();
        times.push(took);
    }
    println!(
        "| {detail:?} | {format:?} | {:.1} | {:.1} | {} | {} | {} | {resident} | {left} |",
        times[0],
        median(&mut times.clone()),
        length >> 10,
        most.own,
        most.anonymous,
    );
}

/// Memory in KiB.
#[derive(Clone, Copy, Default)]
struct Memory {
    own: u64,
    anonymous: u64,
}

impl Memory {
    fn read(status: &Status) -> Self {
        Self {
            own: plimsoll::mem_stats().other_sys >> 10,
            anonymous: status.kib("RssAnon"),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            own: self.own.max(other.own),
            anonymous: self.anonymous.max(other.anonymous),
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            own: self.own.saturating_sub(other.own),
            anonymous: self.anonymous.saturating_sub(other.anonymous),
        }
    }
}

/// Runs `work` while another thread reads the memory; returns the peak.
fn beside_observer<R>(work: impl FnOnce() -> R) -> (R, Memory) {
    let over = AtomicBool::new(false);
    let watching = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let status = Status::open();
            let mut most = Memory::default();
            loop {
                most = most.max(Memory::read(&status));
                watching.store(true, Ordering::Release);
                if over.load(Ordering::Acquire) {
                    return most;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        while !watching.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = work();
        over.store(true, Ordering::Release);
        (result, observer.join().expect("no thread panics"))
    })
}
