//! Switching everything off that costs more than exact counts, and on again.

use std::time::Duration;

use plimsoll_core::settings::MemoryLimit;
use plimsoll_core::warning;
use plimsoll_limits::{give_back, memory_limit};
use plimsoll_profiles::profile::switch;
use plimsoll_serve::history;

use super::Plimsoll;

impl Plimsoll {
    /// Ends everything that costs more than exact counts: samples, the history, the return of idle memory, and of this value the pages and
    /// the memory limit. Samples stay, and [`Config::out`](crate::Config::out) still writes them. The history is dropped, also in a
    /// post-mortem file.
    /// Rates that are set meanwhile hold from [`Plimsoll::switch_on`] on. Recordings for a time, such as
    /// [`profile::cpu::start`](crate::profile::cpu::start) and requests with `seconds=`, run to their end. Waits until the
    /// server has sent answers in progress, at most two seconds. [`Config::off`](crate::Config::off) says what remains.
    ///
    /// The switch is the process's: it concerns all values, except for the pages and limits of others.
    ///
    /// ```
    /// let mut plimsoll = plimsoll::config().start();
    /// plimsoll.switch_off();
    /// assert_eq!(plimsoll::profile::heap_rate(), 0);
    /// plimsoll.switch_on();
    /// assert_eq!(plimsoll::profile::heap_rate(), 512 << 10);
    /// ```
    pub fn switch_off(&mut self) {
        if std::mem::take(&mut self.is_begun) {
            #[cfg(feature = "http")]
            drop(self.server.take());
            if self.limit.is_some_and(|limit| limit != MemoryLimit::Off) {
                // Only a limit can be refused. The program may have set another one.
                let before = memory_limit::set_memory_limit(MemoryLimit::Off).unwrap_or(None);
                let own = self
                    .limit
                    .filter(|limit| limit.bytes().is_ok_and(|own| own == before));
                self.limit = own.or(before.map(MemoryLimit::Bytes));
            }
        }
        give_back::set(None);
        history::begin(0, Duration::ZERO);
        switch::switch_off();
    }

    /// Begins all of that again. Does not bring back threads of Plimsoll that a system call filter has ended. Never fails:
    /// each failure is a warning on standard error. Has no effect if this value is on.
    pub fn switch_on(&mut self) {
        switch_on();
        if !self.is_begun {
            self.prepare();
            self.begin(|_| {});
        }
    }

    /// Returns whether Plimsoll is on in this process.
    pub fn is_on(&self) -> bool {
        !switch::is_off()
    }

    /// Starts without anything that costs more than exact counts. The rates of the settings hold from the next switch on.
    pub(super) fn begin_off(&mut self) {
        self.switch_off();
        self.config.set_rates();
    }
}

/// Switches the rates on.
pub(super) fn switch_on() {
    if let Err(error) = switch::switch_on() {
        warning::warn(format_args!("cannot record CPU samples: {error}"));
    }
}
