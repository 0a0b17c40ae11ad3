//! Reads the metrics over jemalloc with its backend.

use plimsoll::stats::backend::Jemalloc;

mod measured;

#[global_allocator]
static ALLOC: plimsoll::Alloc<Jemalloc> = plimsoll::Alloc::jemalloc();

fn main() {
    measured::main();
}
