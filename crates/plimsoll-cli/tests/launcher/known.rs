//! Allocates known numbers of blocks of known sizes, by function. Frees every second block.
//! Arguments: the numbers of small, medium and large blocks.

use std::hint::black_box;

/// Frees every second block, and never the others.
fn free_half(blocks: &mut Vec<Vec<u8>>) {
    for (index, block) in blocks.drain(..).enumerate() {
        if index % 2 == 0 {
            drop(block);
        } else {
            std::mem::forget(block);
        }
    }
}

#[inline(never)]
fn small(count: usize, kept: &mut Vec<Vec<u8>>) {
    for _ in 0..count {
        kept.push(black_box(vec![1; 200]));
    }
    free_half(kept);
}

#[inline(never)]
fn medium(count: usize, kept: &mut Vec<Vec<u8>>) {
    for _ in 0..count {
        kept.push(black_box(vec![0; 1000]));
    }
    free_half(kept);
}

#[inline(never)]
fn large(count: usize, kept: &mut Vec<Vec<u8>>) {
    for _ in 0..count {
        kept.push(black_box(Vec::with_capacity(20_000)));
    }
    free_half(kept);
}

fn main() {
    // Larger than all classes, whatever the numbers are.
    const CAPACITY: usize = 100_000;
    let mut counts = std::env::args().skip(1).map(|word| {
        let count: usize = word.parse().expect("a number");
        assert!(count <= CAPACITY);
        count
    });
    let mut next = || counts.next().expect("three numbers");
    small(next(), &mut Vec::with_capacity(CAPACITY));
    medium(next(), &mut Vec::with_capacity(CAPACITY));
    let count = next();
    let thread = std::thread::spawn(move || large(count, &mut Vec::with_capacity(CAPACITY)));
    thread.join().expect("the thread does not panic");
}
