//! All of the heap's work at once: blocks that are freed by other threads, threads that end, forks,
//! memory that is returned, readings.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use plimsoll::stats::fragmentation;
use plimsoll::{free_os_memory, mem_stats, profile};
use plimsoll_testkit::child;

use super::pages::check;

/// The rounds that each thread makes at least.
const ROUNDS: u64 = 40;

/// A block whose first and last bytes are known.
struct Block(Vec<u8>, u8);

impl Block {
    fn new(state: &mut u64) -> Self {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        let bits = *state >> 33;
        // Mostly small ones, some of many pages.
        let size = match bits % 64 {
            0 => 1 + bits as usize % 3_000_000,
            1..8 => 1 + bits as usize % 70_000,
            _ => 1 + bits as usize % 2000,
        };
        Self(vec![bits as u8; size], bits as u8)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (first, last) = (self.0[0], self.0[self.0.len() - 1]);
        assert_eq!(
            (first, last),
            (self.1, self.1),
            "a block has other contents"
        );
    }
}

fn allocate(seed: u64, others: &SyncSender<Block>, round: impl Fn() -> bool) {
    let mut state = seed;
    let mut live = Vec::new();
    while round() {
        for _ in 0..500 {
            live.push(Block::new(&mut state));
            let bits = state >> 40;
            if live.len() > 200 {
                live.swap_remove(bits as usize % live.len());
            }
            match bits % 16 {
                0 => drop(others.send(Block::new(&mut state))),
                1 => {
                    let at = bits as usize % live.len();
                    let fill = live[at].1;
                    live[at].0.resize(1 + bits as usize % 9000, fill);
                    let last = live[at].0.len() - 1;
                    live[at].0[last] = fill;
                }
                _ => {}
            }
        }
    }
}

fn free(blocks: &Receiver<Block>) {
    let mut kept = Vec::new();
    for block in blocks {
        kept.push(block);
        if kept.len() > 50 {
            kept.drain(..25);
        }
    }
}

fn start_threads(round: impl Fn() -> bool) {
    while round() {
        let blocks = std::thread::spawn(|| {
            let mut state = 7;
            let blocks: Vec<Block> = (0..100).map(|_| Block::new(&mut state)).collect();
            black_box(blocks)
        });
        drop(blocks.join().expect("the thread ends"));
    }
}

fn fork(round: impl Fn() -> bool) {
    while round() {
        // SAFETY: the child uses this heap and system calls only, and then ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let mut state = 9;
            let blocks: Vec<Block> = (0..100).map(|_| Block::new(&mut state)).collect();
            drop(blocks);
            let stats = plimsoll_heap::stats();
            let is_right = stats.mallocs >= stats.frees;
            // SAFETY: ends the child without the parent's handlers.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: the status is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}

fn return_memory(round: impl Fn() -> bool) {
    while round() {
        free_os_memory();
        assert!(fragmentation().is_ok());
    }
}

fn everything() {
    let soak = std::env::var("PLIMSOLL_SOAK_SECONDS").ok();
    let soak = soak.map_or(0, |seconds| seconds.parse().expect("a number of seconds"));
    let ends = Instant::now() + Duration::from_secs(soak);
    let done = AtomicBool::new(false);
    let rounds = [const { AtomicU64::new(0) }; 6];
    // Each call counts a round of a thread, and returns whether another follows.
    let round = |of: usize| {
        rounds[of].fetch_add(1, Ordering::Relaxed);
        !done.load(Ordering::Relaxed)
    };
    let (sender, receiver) = sync_channel(100);
    std::thread::scope(|scope| {
        for of in 0..3 {
            let (sender, round) = (sender.clone(), &round);
            scope.spawn(move || allocate(of as u64, &sender, || round(of)));
        }
        drop(sender);
        scope.spawn(move || free(&receiver));
        scope.spawn(|| start_threads(|| round(3)));
        scope.spawn(|| fork(|| round(4)));
        scope.spawn(|| return_memory(|| round(5)));
        let mut before = mem_stats();
        loop {
            let stats = mem_stats();
            check(&stats);
            assert!(stats.mallocs >= before.mallocs && stats.frees >= before.frees);
            assert!(stats.frees <= stats.mallocs);
            before = stats;
            black_box(profile::lookup("heap").map(|heap| heap.count()));
            let mut all = rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed));
            if all.all(|rounds| rounds >= ROUNDS) && Instant::now() >= ends {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = plimsoll_heap::stats();
    assert!(stats.mallocs >= stats.frees);
}

#[test]
fn everything_at_once() {
    child::run("everything_at_once", "heap_rate=64k", everything);
}
