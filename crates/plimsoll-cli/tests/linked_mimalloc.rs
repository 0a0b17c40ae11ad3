//! `plimsoll run` on a program in Rust whose allocator is mimalloc.

mod linked;

#[global_allocator]
static ALLOCATOR: linked::Counted<mimalloc::MiMalloc> = linked::Counted(mimalloc::MiMalloc);

fn main() {
    linked::main("mimalloc");
}
