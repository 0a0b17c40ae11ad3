//! Threads that wait until all are there.

use std::fmt;
use std::sync;

use super::contended::{self, keeps_its_frame, key_of};
use crate::contention::{self, Ended, WaitKind};

pub use std::sync::BarrierWaitResult;

/// [`std::sync::Barrier`], whose waits are in the block profile: of each round those of all threads
/// but the last, until the last came.
#[repr(C, align(8))]
pub struct Barrier {
    inner: sync::Barrier,
}

impl Barrier {
    /// Creates one for `n` threads.
    #[must_use]
    #[inline]
    pub const fn new(n: usize) -> Self {
        Self {
            inner: sync::Barrier::new(n),
        }
    }

    /// As [`std::sync::Barrier::wait`].
    pub fn wait(&self) -> BarrierWaitResult {
        if !contention::is_on() {
            return self.inner.wait();
        }
        let key = key_of(self);
        // Who is the last is not known before. But each advances the clocks of all who are there;
        // the last does so last.
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
