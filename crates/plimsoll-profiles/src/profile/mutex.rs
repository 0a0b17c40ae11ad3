//! The `mutex` profile: releases of locks for which others waited, and the waiting times they
//! ended.

use plimsoll_pprof::kinds::{self, ProfileKind};

use super::Source;
use super::delays;
use super::reading::{Reading, TextReading};
use plimsoll_core::stack::Kind;
use plimsoll_waits::contention;

pub(super) struct Mutex;

impl Source for Mutex {
    fn kind(&self) -> ProfileKind {
        kinds::MUTEX
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        delays::count(Kind::Mutex)
    }

    fn read(&self) -> Reading {
        delays::read(Kind::Mutex, |totals| {
            ("blamed", totals.releases, totals.blamed_ns)
        })
    }

    fn read_text(&self) -> TextReading {
        let head = format!(
            "--- mutex:\ncycles/second=1000000000\nsampling period={}\n",
            contention::mutex_fraction()
        );
        delays::read_text(Kind::Mutex, head)
    }
}
