//! Pairs over mimalloc, counted and sampled.

#[global_allocator]
static ALLOC: plimsoll::Alloc<mimalloc::MiMalloc> = plimsoll::Alloc::new(mimalloc::MiMalloc);

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench::pairs::main();
}
