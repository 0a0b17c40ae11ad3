//! Switching everything off that costs more than exact counts, and on again.

use std::time::Duration;

use plimsoll_core::settings::{Early, MemoryLimit};
use plimsoll_core::warning;
use plimsoll_profiles::profile;
use plimsoll_serve::history;
use plimsoll_stats::memory_limit;
use plimsoll_tasks::task;

use super::{Config, Plimsoll};

/// How much the process records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    heap: usize,
    block: Duration,
    mutex_fraction: u32,
    cpu: u32,
    long_poll: Option<Duration>,
    task_times: bool,
}

impl Rates {
    const NONE: Self = Self {
        heap: 0,
        block: Duration::ZERO,
        mutex_fraction: 0,
        cpu: 0,
        long_poll: None,
        task_times: false,
    };

    /// Returns those of a process that starts with the settings.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            heap: config.heap_rate.unwrap_or(Early::DEFAULT.heap_rate),
            block: config.block_rate.unwrap_or_default(),
            mutex_fraction: config.mutex_fraction.unwrap_or_default(),
            cpu: config.cpu_rate.unwrap_or_default(),
            long_poll: config.long_poll.filter(|threshold| !threshold.is_zero()),
            task_times: config.task_times.unwrap_or_default(),
        }
    }

    /// Sets all rates, and returns those before.
    fn replace(self) -> Self {
        Self {
            heap: profile::set_heap_rate(self.heap),
            block: profile::set_block_rate(self.block),
            mutex_fraction: profile::set_mutex_fraction(self.mutex_fraction),
            cpu: profile::cpu::set_rate(self.cpu).unwrap_or_else(|error| {
                warning::warn(format_args!("cannot record CPU samples: {error}"));
                0
            }),
            long_poll: profile::set_long_poll(self.long_poll),
            task_times: task::set_times(self.task_times),
        }
    }
}

impl Plimsoll {
    /// Ends everything that costs more than exact counts: samples, the history, the memory limit of the settings, and the
    /// pages. From then on no timer of Plimsoll runs out. Samples stay, and [`Config::out`] still writes them; the history
    /// is dropped. Threads of Plimsoll that remain wait without an end, unless a system call filter restricts the process.
    /// [`Config::off`] says what else remains. Has no effect if Plimsoll is off.
    ///
    /// ```
    /// let mut plimsoll = plimsoll::config().start();
    /// plimsoll.switch_off();
    /// assert_eq!(plimsoll::profile::heap_rate(), 0);
    /// plimsoll.switch_on();
    /// assert_eq!(plimsoll::profile::heap_rate(), 512 << 10);
    /// ```
    pub fn switch_off(&mut self) {
        if self.rates_when_on.is_some() {
            return;
        }
        #[cfg(feature = "http")]
        drop(self.server.take());
        if self.config.memory_limit.is_some() {
            // Only a limit can be refused.
            let _ = memory_limit::set_memory_limit(MemoryLimit::Off);
        }
        history::begin(0, Duration::ZERO);
        self.rates_when_on = Some(Rates::NONE.replace());
    }

    /// Begins all of that again, with the rates at the time of [`Plimsoll::switch_off`]; after a start with
    /// [`Config::off`], with the settings. Never fails: each failure is a warning on standard error. Has no effect if
    /// Plimsoll is on.
    pub fn switch_on(&mut self) {
        if let Some(rates) = self.rates_when_on.take() {
            self.prepare();
            self.begin(|_| {
                rates.replace();
            });
        }
    }

    /// Returns whether Plimsoll is on.
    pub fn is_on(&self) -> bool {
        self.rates_when_on.is_none()
    }

    /// Starts without anything that costs more than exact counts.
    pub(super) fn begin_off(&mut self) {
        Rates::NONE.replace();
        self.rates_when_on = Some(Rates::of(&self.config));
    }
}
