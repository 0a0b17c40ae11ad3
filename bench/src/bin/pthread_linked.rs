//! The C library's locks, with Plimsoll linked in but not started.

fn main() {
    assert!(plimsoll::profile::block_rate().is_zero());
    plimsoll_bench::pthread::main();
}
