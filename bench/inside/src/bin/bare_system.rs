//! The work over the system's allocator alone.

#[global_allocator]
static ALLOC: std::alloc::System = std::alloc::System;

fn main() {
    plimsoll_bench_inside::main();
}
