//! The memory of threads without Plimsoll; `memory` runs this program. `memory_bare THREADS`.

#[global_allocator]
static ALLOC: std::alloc::System = std::alloc::System;

fn main() {
    let threads = std::env::args().nth(1).map(|threads| threads.parse());
    let threads = threads.expect("a number of threads");
    plimsoll_bench::thread_memory::measure(threads.expect("a number"), || ()).print();
}
