//! The memory of threads without Plimsoll; `memory` runs this program.

#[global_allocator]
static ALLOC: std::alloc::System = std::alloc::System;

fn main() {
    plimsoll_bench::thread_memory::measure(|| ());
}
