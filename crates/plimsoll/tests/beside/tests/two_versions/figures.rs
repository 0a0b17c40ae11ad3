//! The figures of one version of Plimsoll, from its pages.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use plimsoll_testkit::client::{get, wait_for};
use plimsoll_testkit::pprof::{Profile, Sample};

pub fn read(pages: SocketAddr, page: &str) -> Profile {
    let answer = get(pages, &format!("/debug/pprof/{page}"));
    assert_eq!(answer.status, 200, "{page}");
    Profile::read(&answer.body)
}

/// Returns the samples with a function of that name anywhere in the stack.
pub fn within<'p>(profile: &'p Profile, function: &str) -> Vec<&'p Sample> {
    let samples = profile.sample.iter();
    samples
        .filter(|sample| {
            let names = profile.names(sample);
            names.iter().any(|name| name.split("::").any(|part| part == function))
        })
        .collect()
}

/// Returns the number of events of the profiles `block` and `mutex`, and of threads of `goroutine`.
pub fn events(pages: SocketAddr, page: &str, function: &str) -> i64 {
    let profile = read(pages, page);
    let samples = within(&profile, function);
    samples.iter().map(|sample| sample.value[0]).sum()
}

/// Asserts that the heap profile estimates the blocks that a function keeps. A profile holds a block with the
/// probability p = 1 - exp(-13,500 / 16,384) = 0.56, and estimates 1 / p blocks for it. The bound is five standard
/// deviations, each of which is the square root of 0.79 for each block: an error probability of 6e-7.
pub fn assert_kept(pages: SocketAddr, function: &str, blocks: usize) {
    let heap = read(pages, "heap");
    let estimated = heap.sum(within(&heap, function)).inuse_objects;
    let bound = (5.0 * (0.79 * blocks as f64).sqrt()) as u64;
    assert!(estimated.abs_diff(blocks as i64) <= bound, "{function}: {estimated} of {blocks}");
}

fn thread_cpu() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline(never)]
fn burns_here() {
    let end = Instant::now() + std::time::Duration::from_millis(5);
    while Instant::now() < end {
        for turn in 0..1000 {
            black_box(turn);
        }
    }
}

#[inline(never)]
fn runs_here(runs: &AtomicBool, stop: &AtomicBool) {
    runs.store(true, Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Asserts that both versions read the stack of a running thread, which they interrupt for that.
pub fn assert_running(pages: [SocketAddr; 2]) {
    let [runs, stop] = [const { AtomicBool::new(false) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| runs_here(&runs, &stop));
        wait_for("a running thread", || runs.load(Ordering::Relaxed));
        let counts = pages.map(|pages| events(pages, "goroutine", "runs_here"));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(counts, [1, 1]);
    });
}

/// Asserts that both versions sample the CPU time of a thread at once. Each recording began after the thread and
/// ended before it.
pub fn assert_cpu(pages: [SocketAddr; 2]) {
    let readers = pages.map(|pages| std::thread::spawn(move || read(pages, "profile?seconds=1")));
    let began = thread_cpu();
    while readers.iter().any(|reader| !reader.is_finished()) {
        burns_here();
    }
    let used = thread_cpu() - began;
    for (version, reader) in readers.into_iter().enumerate() {
        let profile = reader.join().expect("the page can be read");
        let samples = within(&profile, "burns_here");
        let sampled: i64 = samples.iter().map(|sample| sample.value[1]).sum();
        let bound = used as i64 + 2 * profile.period;
        assert!(sampled > 0 && sampled <= bound, "version {version}: {sampled} of {used} ns");
    }
}
