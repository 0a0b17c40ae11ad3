//! Pairs over system, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<std::alloc::System> = plimsoll::Alloc::new(std::alloc::System);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench::pairs::main();
}
