//! Pairs of an allocation and its free, through the program's global allocator.
//!
//! `PROGRAM WORK PAIRS [THREADS]` runs that many pairs in each thread and prints the CPU time of a
//! pair in nanoseconds. *tight* boxes a `u64` and drops it. *random* replaces one of 10,000 live
//! blocks by one of 16 to 511 bytes, *larger* by one of 1 to 5 KiB, *large* by one of 33 to 63 KB.
//! *zeroed* allocates 16 to 511 zeroed bytes and frees them. *realloc* grows or shrinks one block,
//! to 16 to 511 bytes.

use std::hint::black_box;

use crate::arguments::number;
use crate::clock;

/// The `main` of each such program. Returns the number of pairs in all threads.
pub fn main() -> usize {
    let work: fn(usize, u64) = match std::env::args().nth(1).as_deref() {
        Some("tight") => tight,
        Some("random") => |pairs, seed| replace(pairs, seed, |size| size),
        Some("larger") => |pairs, seed| replace(pairs, seed, |size| 1025 + 8 * size),
        Some("large") => |pairs, seed| replace(pairs, seed, |size| 33_000 + 60 * size),
        Some("zeroed") => zeroed,
        Some("realloc") => realloc,
        _ => panic!("the first argument is tight, random, larger, large, zeroed or realloc"),
    };
    let (pairs, threads) = (number(2, 1), number(3, 1));
    let start = clock::process();
    if threads == 1 {
        work(pairs, 0);
    } else {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || work(pairs, thread as u64));
            }
        });
    }
    let all = pairs * threads;
    println!("{}", (clock::process() - start) as f64 / all as f64);
    all
}

/// Defines a program that runs pairs over this allocator alone.
#[macro_export]
macro_rules! bare_pairs {
    ($allocator:path) => {
        #[global_allocator]
        static ALLOC: $allocator = $allocator;

        fn main() {
            $crate::pairs::main();
        }
    };
}

/// Defines a program that runs pairs over this allocator, with Plimsoll.
#[macro_export]
macro_rules! plimsoll_pairs {
    ($allocator:path) => {
        #[global_allocator]
        static ALLOC: plimsoll::Alloc<$allocator> = plimsoll::Alloc::new($allocator);

        fn main() {
            let _plimsoll = plimsoll::start();
            let pairs = $crate::pairs::main();
            let counted = plimsoll::heap_stats().mallocs;
            assert!(counted >= pairs as u64, "pairs are not counted");
        }
    };
}

fn tight(pairs: usize, _seed: u64) {
    // Uses up blocks that the thread inherited from others at its start. Two threads whose single
    // blocks share a cache line would measure that line.
    let before: Vec<Box<usize>> = (0..1000).map(Box::new).collect();
    box_and_drop(pairs);
    black_box(before);
}

#[inline(never)]
fn box_and_drop(pairs: usize) {
    for pair in 0..pairs {
        drop(black_box(Box::new(pair)));
    }
}

fn replace(pairs: usize, seed: u64, size_of: impl Fn(usize) -> usize) {
    let mut live: Vec<Option<Vec<u8>>> = vec![None; 10_000];
    let mut random = Random::new(seed);
    for _ in 0..pairs {
        let (size, place) = random.size_and_place(live.len());
        live[place] = Some(Vec::with_capacity(size_of(size)));
    }
    black_box(live);
}

fn zeroed(pairs: usize, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..pairs {
        let (size, _) = random.size_and_place(1);
        drop(black_box(vec![0u8; size]));
    }
}

fn realloc(pairs: usize, seed: u64) {
    let mut block: Vec<u8> = Vec::with_capacity(1024);
    let mut random = Random::new(seed);
    for _ in 0..pairs {
        // The new size always differs from the old one, so that each round is one reallocation.
        let (size, _) = random.size_and_place(1);
        let size = size + usize::from(size == block.capacity());
        if size > block.capacity() {
            block.reserve_exact(size);
        } else {
            block.shrink_to(size);
        }
        black_box(block.as_ptr());
    }
}

/// A generator of numbers, the same for the same seed (xorshift).
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed + 1)
    }

    /// Returns a size from 16 to 511, and an index below `places`.
    pub fn size_and_place(&mut self, places: usize) -> (usize, usize) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let size = 16 + (self.0 as usize >> 20) % 496;
        (size, (self.0 as usize >> 40) % places)
    }
}
