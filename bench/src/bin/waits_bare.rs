//! Locks, without Plimsoll.

fn main() {
    plimsoll_bench::waits::main();
}
