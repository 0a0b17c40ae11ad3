//! The C library's locks, without Plimsoll.

fn main() {
    plimsoll_bench::pthread::main();
}
