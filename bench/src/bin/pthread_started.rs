//! The C library's locks, with Plimsoll started.

use plimsoll::profile;

fn main() {
    let _plimsoll = plimsoll::start();
    // What its thread does some time later, for certain.
    let fraction = profile::mutex_fraction();
    profile::set_mutex_fraction(1);
    profile::set_mutex_fraction(fraction);
    plimsoll_bench::pthread::main();
}
