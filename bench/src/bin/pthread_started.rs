//! The C library's locks, with Plimsoll started.

use plimsoll::profile;

fn main() {
    let _plimsoll = plimsoll::start();
    // Forces the preparations that the maintenance thread would make some time later.
    let fraction = profile::mutex_fraction();
    profile::set_mutex_fraction(1);
    profile::set_mutex_fraction(fraction);
    plimsoll_bench::pthread::main();
}
