//! Promise 3, under load: whatever threads do, every snapshot adds up. With the feature
//! `double-check`, every snapshot is also compared with independent totals.
//!
//! Each protocol runs in a separate process. Each run takes one second, or the number of seconds in
//! `PLIMSOLL_SOAK_SECONDS`, and longer if it has not taken the number of snapshots in `PLIMSOLL_CUTS`
//! by then.

use plimsoll_testkit::child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll::{HeapStats, heap_stats};

fn soak() -> Duration {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").ok();
    Duration::from_secs(seconds.map_or(1, |seconds| seconds.parse().expect("a number of seconds")))
}

/// Returns the minimum number of snapshots.
fn min_cuts() -> u64 {
    let cuts = std::env::var("PLIMSOLL_CUTS").ok();
    cuts.map_or(0, |cuts| cuts.parse().expect("a number of snapshots"))
}

/// Returns the next number of xorshift64.
fn next(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 16) as usize
}

fn size(random: &mut u64) -> usize {
    match next(random) % 16 {
        0..12 => 1 + next(random) % 600,
        12..14 => 1 + next(random) % 9000,
        14 => 1 + next(random) % 40_000,
        _ => 30_000 + next(random) % 200_000,
    }
}

/// Allocates, grows, shrinks and frees blocks, and leaves some for other threads to free.
fn work(seed: u64, left: &Mutex<Vec<Vec<u8>>>) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut mine: Vec<Vec<u8>> = Vec::new();
    for _ in 0..2000 {
        match next(&mut random) % 8 {
            0..3 => mine.push(Vec::with_capacity(size(&mut random))),
            3 => mine.push(vec![0; size(&mut random)]),
            4 => {
                if let Some(block) = mine.last_mut() {
                    block.reserve_exact(size(&mut random));
                }
            }
            5 => {
                if let Some(block) = mine.last_mut() {
                    block.truncate(block.len() / 2);
                    block.shrink_to_fit();
                }
            }
            6 => {
                let mut left = left.lock().unwrap();
                if left.len() < 500 {
                    left.extend(mine.pop());
                }
            }
            _ => {
                let taken = left.lock().unwrap().pop();
                drop(taken);
                let at = next(&mut random) % mine.len().max(1);
                if at < mine.len() {
                    mine.swap_remove(at);
                }
            }
        }
    }
}

fn check(now: &HeapStats, before: &HeapStats) {
    assert!(now.exact);
    let (mut mallocs, mut frees) = (now.large.mallocs, now.large.frees);
    let (mut malloc_bytes, mut free_bytes) = (now.large.malloc_bytes, now.large.free_bytes);
    for (class, earlier) in now.by_class.iter().zip(&before.by_class) {
        assert!(class.frees <= class.mallocs, "{class:?}");
        assert!(
            class.mallocs >= earlier.mallocs && class.frees >= earlier.frees,
            "{class:?} after {earlier:?}"
        );
        mallocs += class.mallocs;
        frees += class.frees;
        malloc_bytes += class.mallocs * class.size as u64;
        free_bytes += class.frees * class.size as u64;
    }
    assert!(
        now.large.frees <= now.large.mallocs && now.large.free_bytes <= now.large.malloc_bytes,
        "{:?}",
        now.large
    );
    // Large blocks are more than 32 KiB each: counts and bytes belong to the same blocks.
    let live = now.large.mallocs - now.large.frees;
    assert!(
        now.large.malloc_bytes - now.large.free_bytes >= live * 32_768,
        "{:?}",
        now.large
    );
    assert!(
        live > 0 || now.large.malloc_bytes == now.large.free_bytes,
        "{:?}",
        now.large
    );
    assert_eq!(
        (mallocs, frees, malloc_bytes, free_bytes),
        (now.mallocs, now.frees, now.malloc_bytes, now.free_bytes)
    );
    assert_eq!(now.live_objects(), mallocs - frees);
    assert_eq!(now.live_bytes(), malloc_bytes - free_bytes);
}

/// Ends the other threads' loops when its thread ends, also by a failed check.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn hammer() {
    let left = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let snapshots = AtomicU64::new(0);
    let min_cuts = min_cuts();
    let start = heap_stats();
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let (left, stop) = (&left, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    // A new thread in each round, so that threads end while snapshots are taken.
                    std::thread::scope(|one| {
                        one.spawn(|| work(worker << 32 | round, left));
                    });
                }
            });
        }
        for _ in 0..2 {
            let (stop, snapshots) = (&stop, &snapshots);
            scope.spawn(move || {
                let _stop = Stop(stop);
                let mut before = heap_stats();
                while !stop.load(Ordering::Relaxed) {
                    let now = heap_stats();
                    check(&now, &before);
                    before = now;
                    snapshots.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        let begun = Instant::now();
        let mut before = start.clone();
        while !stop.load(Ordering::Relaxed)
            && (begun.elapsed() < soak()
                || before.mallocs < start.mallocs + 100_000
                || snapshots.load(Ordering::Relaxed) < min_cuts)
        {
            let now = heap_stats();
            check(&now, &before);
            before = now;
            snapshots.fetch_add(1, Ordering::Relaxed);
        }
        eprintln!(
            "{snapshots:?} snapshots, {} operations",
            before.mallocs + before.frees
        );
    });
    drop(left);
    // Every thread has ended and every block is freed: no count is lost or left over.
    let end = heap_stats();
    check(&end, &start);
    assert!(
        end.live_bytes() < start.live_bytes() + 100_000,
        "{} bytes left",
        end.live_bytes()
    );
    assert_eq!(
        end.large.mallocs - end.large.frees,
        start.large.mallocs - start.large.frees
    );
}

#[test]
fn snapshots_hold_with_per_cpu_shards() {
    child::run(
        "snapshots_hold_with_per_cpu_shards",
        "ledger=per-cpu,heap_rate=64k",
        hammer,
    );
}

#[test]
fn snapshots_hold_with_per_thread_shards() {
    child::run(
        "snapshots_hold_with_per_thread_shards",
        "ledger=per-thread,heap_rate=64k",
        hammer,
    );
}

#[test]
fn snapshots_hold_with_fenced_shards() {
    child::run(
        "snapshots_hold_with_fenced_shards",
        "ledger=fenced,heap_rate=64k",
        hammer,
    );
}

/// Every block is sampled, so it lies in Plimsoll's own memory, as far as that suffices.
#[test]
fn snapshots_hold_with_every_allocation_sampled() {
    child::run(
        "snapshots_hold_with_every_allocation_sampled",
        "heap_rate=1,unwinder=tables",
        hammer,
    );
}
