//! `plimsoll run` on a program in Rust whose allocator is jemalloc.

mod linked;

#[global_allocator]
static ALLOCATOR: linked::Counted<tikv_jemallocator::Jemalloc> =
    linked::Counted(tikv_jemallocator::Jemalloc);

fn main() {
    linked::main("jemalloc");
}
