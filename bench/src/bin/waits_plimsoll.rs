//! Locks, with Plimsoll linked in.

use plimsoll::profile;
use plimsoll_bench::waits::{self, CASES, WAITING};

fn main() {
    let _plimsoll = plimsoll::start();
    waits::main();
    let case = std::env::args().nth(1).unwrap_or_default();
    let waits = CASES[..WAITING].iter().any(|(name, _)| *name == case);
    if waits && profile::block_rate().as_nanos() == 1 {
        let block = profile::lookup("block").expect("built in");
        assert!(block.count() > 0, "{case}: no wait was recorded");
    }
}
