//! The work over jemalloc alone.

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    plimsoll_bench_inside::main();
}
