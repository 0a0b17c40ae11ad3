//! The work over mimalloc alone.

#[global_allocator]
static ALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    plimsoll_bench_inside::main();
}
