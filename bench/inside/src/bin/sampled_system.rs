//! The work over the system's allocator, sampled and not counted.

#[global_allocator]
static ALLOC: plimsoll::SamplingAlloc = plimsoll::SamplingAlloc::samples_only(std::alloc::System);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench_inside::main();
}
