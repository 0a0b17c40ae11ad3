//! `selfcontention`: where Plimsoll's own code waited, which is no part of `block` and `mutex`.

use super::Source;
use super::delays;
use super::reading::{Reading, TextReading};
use crate::contention::own;
use crate::stack::Kind;

pub(super) struct SelfContention;

impl Source for SelfContention {
    fn name(&self) -> &'static str {
        "selfcontention"
    }

    fn description(&self) -> &'static str {
        "Stacks of Plimsoll's own code that waited for its locks and threads, at the rate of block. Not in block and mutex."
    }

    fn count(&self) -> usize {
        delays::count(Kind::SelfContention)
    }

    fn read(&self) -> Reading {
        delays::read(Kind::SelfContention, |_| {
            let sums = own::sums();
            ("waited by Plimsoll itself", sums.waits, sums.waited_ns)
        })
    }

    fn read_text(&self) -> TextReading {
        let head = "--- contention:\ncycles/second=1000000000\n";
        delays::read_text(Kind::SelfContention, head.into())
    }
}
