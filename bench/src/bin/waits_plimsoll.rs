//! Locks, with Plimsoll linked in.

fn main() {
    let _plimsoll = plimsoll::start();
    plimsoll_bench::waits::main();
}
