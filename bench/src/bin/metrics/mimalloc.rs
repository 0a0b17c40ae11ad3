//! Reads the metrics over mimalloc with its backend.

use plimsoll::stats::backend::MiMalloc;

mod measured;

#[global_allocator]
static ALLOC: plimsoll::Alloc<MiMalloc> = plimsoll::Alloc::mimalloc();

fn main() {
    measured::main();
}
