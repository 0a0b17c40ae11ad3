//! The `selfcontention` profile: waits of Plimsoll's own code, which `block` and `mutex` omit.

use plimsoll_pprof::kinds::{self, ProfileKind};

use super::Source;
use super::delays;
use super::reading::{Reading, TextReading};
use plimsoll_core::stack::Kind;
use plimsoll_waits::contention::internal;

pub(super) struct SelfContention;

impl Source for SelfContention {
    fn kind(&self) -> ProfileKind {
        kinds::SELFCONTENTION
    }

    fn count(&self) -> usize {
        delays::count(Kind::SelfContention)
    }

    fn read(&self) -> Reading {
        delays::read(Kind::SelfContention, |_| {
            let sums = internal::sums();
            ("waited by Plimsoll itself", sums.waits, sums.waited_ns)
        })
    }

    fn read_text(&self) -> TextReading {
        let head = "--- contention:\ncycles/second=1000000000\n";
        delays::read_text(Kind::SelfContention, head.into())
    }
}
