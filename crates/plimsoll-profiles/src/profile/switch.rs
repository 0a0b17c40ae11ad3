//! The switch of everything that is recorded at a rate.
//!
//! While it is off, the rates in force are zero. A rate that anyone sets meanwhile, or restores, holds from the next switch
//! on.

use std::time::Duration;

use plimsoll_core::alloc::process;
use plimsoll_core::fork::Order;
use plimsoll_core::settings::{self, Early};
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_tasks::task;

use super::cpu;
use crate::cpu::StartError;

/// How much is recorded, as the functions that set it take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) heap: usize,
    pub(super) block: Duration,
    pub(super) mutex_fraction: u32,
    pub(super) cpu: u32,
    pub(super) long_poll: Option<Duration>,
    pub(super) task_times: bool,
}

/// The rates from the next switch on; `None` while everything is on. Held while rates in force change, so that none is
/// set as everything is switched off.
static WHEN_ON: ForkLock<Option<Rates>> = ForkLock::new(Order::Switch.rank(), None);

fn when_on() -> ForkGuard<Option<Rates>> {
    WHEN_ON.lock()
}

/// Returns whether everything is switched off.
pub fn is_off() -> bool {
    when_on().is_some()
}

/// Returns the rate of continuous CPU samples, while everything is off the one from the next switch on.
pub fn cpu_rate() -> u32 {
    when_on().map_or_else(cpu::rate, |rates| rates.cpu)
}

/// Sets a rate by `now`, or while everything is off the one from the next switch on. Returns the one before.
pub(super) fn set<T>(value: T, of: fn(&mut Rates) -> &mut T, now: impl FnOnce(T) -> T) -> T {
    // A rate may be set before the first allocation.
    process::notice_filters();
    match &mut *when_on() {
        Some(rates) => std::mem::replace(of(rates), value),
        None => now(value),
    }
}

/// The same for a rate that cannot always be set.
pub(super) fn try_set<T, E>(
    value: T,
    of: fn(&mut Rates) -> &mut T,
    now: impl FnOnce(T) -> Result<T, E>,
) -> Result<T, E> {
    // A rate may be set before the first allocation.
    process::notice_filters();
    match &mut *when_on() {
        Some(rates) => Ok(std::mem::replace(of(rates), value)),
        None => now(value),
    }
}

/// Notes a switch by the environment, which the first allocation has obeyed. Once, before the program begins.
pub fn prepare() {
    if settings::is_off() {
        *when_on() = Some(Rates {
            heap: Early::DEFAULT.heap_rate,
            block: Duration::ZERO,
            mutex_fraction: 0,
            cpu: 0,
            long_poll: None,
            task_times: false,
        });
    }
}

/// Switches off. Has no effect if everything is off.
pub fn switch_off() {
    let mut when_on = when_on();
    if when_on.is_some() {
        return;
    }
    *when_on = Some(Rates {
        heap: super::heap_rate(),
        block: super::block_rate(),
        mutex_fraction: super::mutex_fraction(),
        cpu: cpu::rate(),
        long_poll: super::long_poll(),
        task_times: task::times(),
    });
    super::set_heap_rate_now(0);
    super::set_block_rate_now(Duration::ZERO);
    super::set_mutex_fraction_now(0);
    // Only starting can fail.
    let _ = cpu::set_rate_now(0);
    super::set_long_poll_now(None);
    task::set_times(false);
}

/// Switches on. Has no effect if everything is on.
///
/// # Errors
/// There can be no CPU samples; all other rates are in force.
pub fn switch_on() -> Result<(), StartError> {
    let mut when_on = when_on();
    let Some(rates) = when_on.take() else {
        return Ok(());
    };
    super::set_heap_rate_now(rates.heap);
    super::set_block_rate_now(rates.block);
    super::set_mutex_fraction_now(rates.mutex_fraction);
    super::set_long_poll_now(rates.long_poll);
    task::set_times(rates.task_times);
    cpu::set_rate_now(rates.cpu).map(drop)
}
