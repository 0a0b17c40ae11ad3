//! Reads the metrics over the system's allocator.

mod measured;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    measured::main();
}
