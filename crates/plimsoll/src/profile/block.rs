//! `block`: where threads waited for one another, and how long.

use super::Source;
use super::delays;
use super::reading::{Reading, TextReading};
use crate::stack::Kind;

pub(super) struct Block;

impl Source for Block {
    fn name(&self) -> &'static str {
        "block"
    }

    fn description(&self) -> &'static str {
        "Stacks of threads that waited: for locks, conditions, channels, other threads."
    }

    fn count(&self) -> usize {
        delays::count(Kind::Block)
    }

    fn read(&self) -> Reading {
        delays::read(Kind::Block, |totals| {
            ("waited", totals.waits, totals.waited_ns)
        })
    }

    fn read_text(&self) -> TextReading {
        let head = "--- contention:\ncycles/second=1000000000\n";
        delays::read_text(Kind::Block, head.into())
    }
}
