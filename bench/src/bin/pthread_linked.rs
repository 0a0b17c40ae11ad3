//! The C library's locks, with Plimsoll linked in and not started.

fn main() {
    assert_eq!(plimsoll::profile::block_rate(), 0);
    plimsoll_bench::pthread::main();
}
