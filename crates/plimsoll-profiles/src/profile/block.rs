//! The `block` profile: stacks of threads that waited for one another, with the waiting times.

use plimsoll_pprof::kinds::{self, ProfileKind};

use super::Source;
use super::delays;
use super::reading::{Reading, TextReading};
use plimsoll_core::stack::Kind;

pub(super) struct Block;

impl Source for Block {
    fn kind(&self) -> ProfileKind {
        kinds::BLOCK
    }

    fn is_kept(&self) -> bool {
        true
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
