//! Allocates by the system's allocator.

use std::alloc::System;
use std::hint::black_box;

#[global_allocator]
static ALLOC: System = System;

fn main() {
    let length = std::env::args().count() * 100;
    let mut zeros = black_box(vec![0_u8; length]);
    zeros.reserve_exact(10 * length);
    black_box(Box::new([length; 4]));
    black_box(zeros);
}
