//! The work over the system's allocator, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
