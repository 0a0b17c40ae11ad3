//! Wakes a waiting thread from any code, including hooks.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// An event that a thread can wait for.
#[derive(Debug, Default)]
pub struct Bell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    /// Wakes the waiting thread, now or at its next wait. Does not allocate. The lock is held for
    /// some instructions only.
    pub fn ring(&self) {
        *self.lock() = true;
        self.rung.notify_one();
    }

    /// Waits until the bell rings.
    pub fn wait(&self) {
        let mut is_rung = self.lock();
        while !std::mem::take(&mut *is_rung) {
            is_rung = self
                .rung
                .wait(is_rung)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Waits until the bell rings, for at most `time`.
    pub fn wait_at_most(&self, time: Duration) {
        let waited = self
            .rung
            .wait_timeout_while(self.lock(), time, |is_rung| !*is_rung);
        let (mut is_rung, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        *is_rung = false;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_rung
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
