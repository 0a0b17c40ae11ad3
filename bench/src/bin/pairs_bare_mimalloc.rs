//! Pairs over mimalloc alone.

#[global_allocator]
static ALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    plimsoll_bench::pairs::main();
}
