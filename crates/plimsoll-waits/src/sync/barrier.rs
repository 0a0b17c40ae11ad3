//! A barrier, at which threads wait for one another.

use std::fmt;
use std::sync;

use super::contended::{self, keeps_its_frame, key_of};
use crate::contention::{Ended, WaitKind};
use plimsoll_tasks::recording;

pub use std::sync::BarrierWaitResult;

/// A [`std::sync::Barrier`] whose waits are in the block profile. In each round, all threads but
/// the last wait until the last has arrived.
#[repr(C, align(8))]
pub struct Barrier {
    inner: sync::Barrier,
}

impl Barrier {
    /// Creates a barrier for `n` threads.
    #[must_use]
    #[inline]
    pub const fn new(n: usize) -> Self {
        Self {
            inner: sync::Barrier::new(n),
        }
    }

    /// Behaves like [`std::sync::Barrier::wait`].
    pub fn wait(&self) -> BarrierWaitResult {
        if !recording::is_on() {
            return self.inner.wait();
        }
        let key = key_of(self);
        // The last thread is not known in advance. So each thread advances the clocks of all
        // threads that wait already, and the last thread does so last.
        contended::stamp(key);
        let result = contended::wait(
            WaitKind::Barrier,
            key,
            || self.inner.wait(),
            |result| {
                if result.is_leader() {
                    Ended::Refused
                } else {
                    Ended::Woken
                }
            },
        );
        keeps_its_frame();
        result
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
